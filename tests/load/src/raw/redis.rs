//! The commands that one call of ours sends to Redis, observed with MONITOR, and the same commands sent plainly: reads as
//! one pipeline, writes as one script.

use anyhow::{Context as _, Result, bail, ensure};
use redis::{Client, Cmd, Connection, Script, aio::MultiplexedConnection};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// A command as it was sent: name and arguments.
pub type Words = Vec<Vec<u8>>;

/// Commands that read, of those that may appear.
const READS: &[&str] = &[
    "GET",
    "MGET",
    "HGET",
    "HMGET",
    "HGETALL",
    "HLEN",
    "HEXISTS",
    "LRANGE",
    "LINDEX",
    "LLEN",
    "XRANGE",
    "XREVRANGE",
    "XLEN",
    "ZRANGE",
    "ZREVRANGE",
    "ZRANGEBYSCORE",
    "ZREVRANGEBYSCORE",
    "ZSCORE",
    "ZCARD",
    "SMEMBERS",
    "SISMEMBER",
    "EXISTS",
    "TTL",
    "PTTL",
    "STRLEN",
    "GETRANGE",
    "SCARD",
    "EXPIRETIME",
    "PEXPIRETIME",
];
/// Commands that are about the connection, the script cache or the clock and not about data.
const NOT_DATA: &[&str] = &[
    "EVAL", "EVALSHA", "FCALL", "SCRIPT", "PING", "CLIENT", "HELLO", "SELECT", "AUTH", "MONITOR", "INFO", "TIME", "ROLE",
    "CONFIG", "COMMAND",
];

/// Watches a Redis.
pub struct Monitor {
    addr: SocketAddr,
    lines: BufReader<TcpStream>,
}

impl Monitor {
    /// Starts watching.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub fn start(addr: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"MONITOR\r\n")?;
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        lines.read_until(b'\n', &mut line)?;
        ensure!(line.starts_with(b"+OK"), "MONITOR was refused");
        Ok(Self { addr, lines })
    }

    /// The data commands since the start, those of scripts included, in order.
    ///
    /// # Errors
    /// When Redis does not answer or a line is malformed.
    pub fn stop(mut self) -> Result<Vec<Words>> {
        // A command of our own marks the end: what was sent before it has been seen when it is seen.
        const END: &str = "strata-bench-end";
        let mut connection: Connection = Client::open(format!("redis://{}", self.addr))?.get_connection()?;
        let _: String = redis::cmd("PING").arg(END).query(&mut connection)?;
        let mut seen = Vec::new();
        loop {
            let mut line = Vec::new();
            ensure!(self.lines.read_until(b'\n', &mut line)? > 0, "MONITOR ended");
            let words = parse(&line).with_context(|| format!("a line of MONITOR: {}", String::from_utf8_lossy(&line)))?;
            if words.get(1).is_some_and(|w| w == END.as_bytes()) {
                return Ok(seen);
            }
            if !NOT_DATA.contains(&name(&words).as_str()) {
                seen.push(words);
            }
        }
    }
}

fn name(words: &Words) -> String {
    words.first().map(|w| String::from_utf8_lossy(w).to_ascii_uppercase()).unwrap_or_default()
}

/// Words of a line such as `+1339518083.107412 [0 127.0.0.1:60866] "keys" "a\x00\"b"`.
fn parse(line: &[u8]) -> Result<Words> {
    let text = line.trim_ascii();
    let at = text.windows(3).position(|w| w == b"] \"").context("no address")?;
    let mut bytes = text[at + 2..].iter().copied();
    let mut words = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' => {}
            b'"' => words.push(word(&mut bytes)?),
            _ => bail!("no quote"),
        }
    }
    Ok(words)
}

fn word(bytes: &mut impl Iterator<Item = u8>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        match bytes.next().context("an open quote")? {
            b'"' => return Ok(out),
            b'\\' => out.push(match bytes.next().context("an open escape")? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'a' => 0x07,
                b'b' => 0x08,
                b'x' => {
                    let digits = [bytes.next().context("an open escape")?, bytes.next().context("an open escape")?];
                    u8::from_str_radix(std::str::from_utf8(&digits)?, 16)?
                }
                other => other,
            }),
            other => out.push(other),
        }
    }
}

/// What a call of ours did, to be done plainly.
#[derive(Clone, Debug)]
pub struct Plain {
    reads: Vec<Words>,
    writes: Vec<Words>,
}

impl Plain {
    /// Splits observed commands.
    ///
    /// # Errors
    /// When there are none: then there is nothing to compare with.
    pub fn of(observed: Vec<Words>) -> Result<Self> {
        ensure!(!observed.is_empty(), "the call sent no command to Redis");
        let (reads, writes) = observed.into_iter().partition(|words| READS.contains(&name(words).as_str()));
        Ok(Self { reads, writes })
    }

    /// Number of reads and of writes.
    pub fn counts(&self) -> (usize, usize) {
        (self.reads.len(), self.writes.len())
    }

    /// The reads, then the writes, as one pipeline.
    ///
    /// # Errors
    /// What Redis answers.
    pub async fn pipeline(&self, connection: &mut MultiplexedConnection) -> Result<()> {
        let mut pipe = redis::pipe();
        for words in self.reads.iter().chain(&self.writes) {
            pipe.add_command(command(words));
        }
        let _: Vec<redis::Value> = pipe.query_async(connection).await?;
        Ok(())
    }

    /// The writes as one script, which does nothing else.
    ///
    /// # Errors
    /// What Redis answers.
    pub async fn write(&self, script: &Script, connection: &mut MultiplexedConnection) -> Result<()> {
        let mut call = script.prepare_invoke();
        for words in &self.writes {
            call.arg(words.len());
            for word in words {
                call.arg(word.as_slice());
            }
        }
        let _: redis::Value = call.invoke_async(connection).await?;
        Ok(())
    }
}

fn command(words: &Words) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word.as_slice());
    }
    command
}

/// Runs each command of its arguments: count of words, words, and so on.
pub fn script() -> Script {
    Script::new(
        "local i = 1
         while i <= #ARGV do
           local n = tonumber(ARGV[i])
           redis.call(unpack(ARGV, i + 1, i + n))
           i = i + n + 1
         end
         return redis.status_reply('OK')",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_monitor_are_read_with_their_escapes() {
        let line = b"+1339518083.107412 [0 127.0.0.1:60866] \"HSET\" \"k\\x00\\\"\\\\\" \"\\xe4\\xbd\\xa0\\n\"\r\n";
        assert_eq!(parse(line).expect("words"), vec![b"HSET".to_vec(), b"k\0\"\\".to_vec(), "你\n".into()]);
        assert_eq!(parse(b"+1.2 [0 lua] \"ping\"\r\n").expect("words"), vec![b"ping".to_vec()]);
        assert!(parse(b"+OK\r\n").is_err() && parse(b"+1.2 [0 lua] \"open\r\n").is_err());
    }

    #[tokio::test]
    async fn what_a_script_did_is_seen_and_done_again() {
        let server = strata_testkit::RedisServer::start();
        let monitor = Monitor::start(server.addr()).expect("a monitor");
        let body = "redis.call('HGETALL', 'h'); redis.call('RPUSH', 'l', 'a b'); return redis.call('HSET', 'h', 'f', '1')";
        let _: i64 = server.command(&["EVAL", body, "0"]);
        let plain = Plain::of(monitor.stop().expect("commands")).expect("some");
        assert_eq!(plain.counts(), (1, 2));
        let mut connection =
            Client::open(server.url()).expect("a URL").get_multiplexed_async_connection().await.expect("a connection");
        plain.pipeline(&mut connection).await.expect("reads and writes");
        plain.write(&script(), &mut connection).await.expect("writes");
        assert_eq!(server.command::<Vec<String>>(&["LRANGE", "l", "0", "-1"]), ["a b", "a b", "a b"]);
    }
}
