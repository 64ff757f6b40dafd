//! A point as a collection keeps it.

use qdrant_client::qdrant::{PointId, Value, point_id};
use std::collections::{BTreeMap, HashMap};
use tonic::Status;

/// Id of a point; numbers come before UUIDs, as on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    Num(u64),
    Uuid(uuid::Uuid),
}

impl Id {
    /// From the wire.
    ///
    /// # Errors
    /// The status of a server for what is no id.
    pub fn from_wire(id: Option<&PointId>) -> Result<Self, Status> {
        match id.and_then(|id| id.point_id_options.as_ref()) {
            Some(point_id::PointIdOptions::Num(n)) => Ok(Self::Num(*n)),
            Some(point_id::PointIdOptions::Uuid(text)) => uuid::Uuid::parse_str(text)
                .map(Self::Uuid)
                .map_err(|_| Status::invalid_argument(format!("Unable to parse UUID: {text}"))),
            None => Err(Status::invalid_argument("No ID options provided")),
        }
    }

    /// As the wire has it.
    pub fn to_wire(self) -> PointId {
        match self {
            Self::Num(n) => PointId::from(n),
            Self::Uuid(uuid) => PointId::from(uuid.hyphenated().to_string()),
        }
    }
}

/// A vector as it is kept: dense ones of a cosine space with length 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    Dense(Vec<f32>),
    Sparse(BTreeMap<u32, f32>),
}

/// A point. The unnamed vector has the name "".
#[derive(Clone, Debug)]
pub struct Point {
    pub id: Id,
    pub payload: HashMap<String, Value>,
    pub vectors: BTreeMap<String, Stored>,
    pub version: u64,
}
