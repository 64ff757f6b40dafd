//! Reads `.npz`: a zip of `.npy` arrays. Only what the weights use: C order, `<f4`, `<f8` and bytes.

use crate::embed::EmbedError;
use std::collections::HashMap;
use std::io::{Cursor, Read};

/// Bytes one array may unpack to: the largest is a 4 MB table; a zip bomb is refused.
const MAX_ARRAY_BYTES: u64 = 64 * 1024 * 1024;

/// Numbers of an array.
pub(super) enum Data {
    Floats(Vec<f32>),
    Bytes(Vec<u8>),
}

/// An array with its shape.
pub(super) struct Array {
    pub(super) shape: Vec<usize>,
    pub(super) data: Data,
}

/// The arrays of an archive, by name.
pub(super) struct Arrays(HashMap<String, Array>);

fn bad(name: &str, what: &str) -> EmbedError {
    EmbedError::Model(format!("weights.npz: {name}: {what}"))
}

impl Arrays {
    /// Unpacks an archive.
    ///
    /// # Errors
    /// [`EmbedError::Model`] when it is no archive of arrays of the known types.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, EmbedError> {
        let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|_| bad("archive", "is no zip archive"))?;
        let mut arrays = HashMap::new();
        for index in 0..archive.len() {
            let file = archive.by_index(index).map_err(|_| bad("archive", "has a damaged entry"))?;
            let name =
                file.name().map_err(|_| bad("archive", "has an entry without a name"))?.trim_end_matches(".npy").to_owned();
            let mut content = Vec::with_capacity(usize::try_from(file.size().min(MAX_ARRAY_BYTES)).unwrap_or(0));
            file.take(MAX_ARRAY_BYTES + 1).read_to_end(&mut content).map_err(|_| bad(&name, "does not unpack"))?;
            if content.len() as u64 > MAX_ARRAY_BYTES {
                return Err(bad(&name, "is too large"));
            }
            let array = parse(&name, content)?;
            arrays.insert(name, array);
        }
        Ok(Self(arrays))
    }

    fn take(&mut self, name: &str, shape: &[usize]) -> Result<Data, EmbedError> {
        let array = self.0.remove(name).ok_or_else(|| bad(name, "is missing"))?;
        if array.shape != shape {
            return Err(bad(name, &format!("has shape {:?}, expected {shape:?}", array.shape)));
        }
        Ok(array.data)
    }

    /// An array of floats of exactly this shape.
    pub(super) fn floats(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, EmbedError> {
        match self.take(name, shape)? {
            Data::Floats(values) => Ok(values),
            Data::Bytes(_) => Err(bad(name, "holds bytes, expected floats")),
        }
    }

    /// An array of bytes of exactly this shape.
    pub(super) fn bytes(&mut self, name: &str, shape: &[usize]) -> Result<Vec<u8>, EmbedError> {
        match self.take(name, shape)? {
            Data::Bytes(values) => Ok(values),
            Data::Floats(_) => Err(bad(name, "holds floats, expected bytes")),
        }
    }
}

fn parse(name: &str, mut content: Vec<u8>) -> Result<Array, EmbedError> {
    let damaged = || bad(name, "is no array");
    if !content.starts_with(b"\x93NUMPY") {
        return Err(damaged());
    }
    let (from, length) = match (content.get(6), content.get(8..12)) {
        (Some(1), Some(&[a, b, _, _])) => (10, usize::from(u16::from_le_bytes([a, b]))),
        (Some(_), Some(&[a, b, c, d])) => (12, u32::from_le_bytes([a, b, c, d]) as usize),
        (_, _) => return Err(damaged()),
    };
    let header = content.get(from..from + length).and_then(|h| std::str::from_utf8(h).ok()).ok_or_else(damaged)?.to_owned();
    if header.contains("'fortran_order': True") {
        return Err(bad(name, "is in Fortran order"));
    }
    let shape = header
        .split_once("'shape': (")
        .and_then(|(_, rest)| rest.split_once(')'))
        .map(|(shape, _)| {
            shape.split(',').map(str::trim).filter(|d| !d.is_empty()).map(str::parse).collect::<Result<Vec<usize>, _>>()
        })
        .and_then(Result::ok)
        .ok_or_else(damaged)?;
    let data = content.split_off(from + length);
    let data = if header.contains("'<f4'") {
        Data::Floats(data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
    } else if header.contains("'<f8'") {
        Data::Floats(data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b) as f32).collect())
    } else if header.contains("'|u1'") || header.contains("'|i1'") {
        Data::Bytes(data)
    } else {
        return Err(bad(name, "has an unknown element type"));
    };
    let held = match &data {
        Data::Floats(values) => values.len(),
        Data::Bytes(values) => values.len(),
    };
    if held != shape.iter().product::<usize>() {
        return Err(bad(name, "holds another number of elements than its shape says"));
    }
    Ok(Array { shape, data })
}
