//! The wire of Strata: messages and clients generated from `proto/`, conversions between wire and domain, the one
//! encoding of errors, and authenticated page tokens. No rules here: those are in `strata-core`.

pub mod codec;
pub mod convert;
pub mod error;
pub mod page;

/// Generated code of one package.
macro_rules! package {
    ($($area:ident),*) => { $(
        // Comments of the protos are prose for every language, not rustdoc.
        #[allow(missing_docs, rustdoc::all, clippy::all, clippy::pedantic, clippy::disallowed_methods, clippy::wildcard_enum_match_arm, clippy::unwrap_used)]
        #[doc = concat!("Package `strata.", stringify!($area), ".v1`.")]
        pub mod $area {
            /// Version 1.
            pub mod v1 { include!(concat!(env!("OUT_DIR"), "/strata.", stringify!($area), ".v1.rs")); }
        }
    )* };
}
package!(admin, common, internal, longterm, router, session, working);

/// Encoded descriptor set of every package, with source comments: for reflection and for tests that walk the methods.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
