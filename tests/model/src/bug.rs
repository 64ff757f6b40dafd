//! Mistakes that are planted to show that the model and the simulation would find them.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A store takes writes of any epoch (rule P3).
    SkipEpochCheck,
    /// The source answers its value and does not hold it (rule P5).
    NoSeal,
    /// The journal says that it holds an entry, and does not (rule P5).
    DropJournal,
    /// The target answers before its transaction is durable, and loses it when it stops.
    AckBeforeCommit,
    /// The source is unsealed without ABORTED at the target (rule P5).
    UndoWithoutFence,
    /// A claim does not look at the levels around it (rule P2).
    IgnoreChain,
    /// An erasure does not raise the erase epoch: calls signed before it are still carried out (rule E2).
    EraseWithoutEpoch,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::SkipEpochCheck,
        Self::NoSeal,
        Self::DropJournal,
        Self::AckBeforeCommit,
        Self::UndoWithoutFence,
        Self::IgnoreChain,
        Self::EraseWithoutEpoch,
    ];
}
