//! The one mapping between a row of `records` and [`Record`].
