//! Frames of HTTP/2 as a client library would never send them, for tests of what a server makes of them.

/// What a connection begins with.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a body.
pub const DATA: u8 = 0;
/// Headers of a stream.
pub const HEADERS: u8 = 1;
/// The end of a stream without its end.
pub const RST_STREAM: u8 = 3;
/// Settings of a connection.
pub const SETTINGS: u8 = 4;
/// The end of a connection.
pub const GOAWAY: u8 = 7;
/// More headers of the same stream.
pub const CONTINUATION: u8 = 9;
/// Flag of [`HEADERS`] and [`CONTINUATION`]: no more of them come.
pub const END_HEADERS: u8 = 4;
/// Flag of [`DATA`] and [`HEADERS`]: nothing more comes on the stream.
pub const END_STREAM: u8 = 1;
/// Code of a reset: the client takes the call back.
pub const CANCEL: [u8; 4] = 8_u32.to_be_bytes();

/// One frame.
///
/// # Panics
/// When the payload is larger than a frame may be.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    assert!(length[0] == 0, "the payload is too large");
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The headers of a gRPC call, in HPACK without compression: POST, http, path, authority, content type; with a credential, if there is
/// one.
///
/// # Panics
/// When a text is longer than 126 bytes.
#[must_use]
pub fn call(path: &str, bearer: Option<&str>) -> Vec<u8> {
    let text = |name: &[u8], value: &str| {
        let mut field = name.to_vec();
        field.push(u8::try_from(value.len()).ok().filter(|length| *length < 127).expect("short"));
        field.extend(value.bytes());
        field
    };
    let credential = bearer.map(|key| text(&[0x0f, 0x08], &format!("Bearer {key}"))).unwrap_or_default();
    [vec![0x83, 0x86], text(&[0x04], path), text(&[0x01], "x"), text(&[0x0f, 0x10], "application/grpc"), credential].concat()
}

/// A header of its own of a kilobyte, in HPACK without compression.
#[must_use]
pub fn kilobyte() -> Vec<u8> {
    [&[0x00, 0x01, b'x', 0x7f, 0x81, 0x07][..], &[b'y'; 1_024]].concat()
}

/// Settings that let the server send nothing of an answer's body.
#[must_use]
pub fn no_window() -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])
}
