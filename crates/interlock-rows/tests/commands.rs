//! Commands on a plain row: replies and changes against a naive model, each refusal, and random
//! bytes.

use std::time::Duration;

use interlock_rows::parse::{Rows, MOST_ROWS};
use interlock_rows::write::Writer;
use interlock_rows::{decide, parse, Change, Refusal, Reply, Verb, View};
use interlock_table::{Schema, Ttl, Value};

const NOW: u64 = 1_700_000_000_000_000;
const SCHEMA: &str = "u: U8, i: I64, f: F32, d: F64, b: bool, s: str[4], r: bytes[3]";

/// A row of a test: its values, and its time to live in ms.
#[derive(Clone, Debug, Default, PartialEq)]
struct Plain(Option<(Vec<Value<'static>>, Option<u64>)>);

impl View for Plain {
    fn is_there(&self) -> bool {
        self.0.is_some()
    }

    fn value(&self, column: usize) -> Value<'_> {
        self.0.as_ref().expect("a row").0[column].clone()
    }

    fn left(&self) -> Option<Duration> {
        self.0.as_ref().expect("a row").1.map(Duration::from_millis)
    }

    /// In this test an expiry is the remaining time in ms.
    fn expiry(&self, ttl: Ttl) -> u64 {
        match ttl {
            Ttl::Usual => 77,
            Ttl::Never => 0,
            Ttl::For(time) => (time.as_millis() as u64).max(1),
        }
    }
}

impl Plain {
    fn make(&mut self, change: &Change<'_>) {
        let zero = || {
            let (float, number) = (Value::Float(0.0), Value::Signed(0));
            let (text, bytes) = (Value::Str("".into()), Value::Bytes(b"".as_slice().into()));
            let first = Value::Unsigned(0);
            vec![first, number, float.clone(), float, Value::Bool(false), text, bytes]
        };
        let alive = |at: u64| (at != 0).then_some(at);
        match change {
            Change::Create { given, expires_at } | Change::Replace { given, expires_at } => {
                assert_eq!(self.is_there(), matches!(change, Change::Replace { .. }));
                self.0 = Some((zero(), alive(*expires_at)));
                self.make(&Change::Patch { given });
            }
            Change::CreateBy { column, value, expires_at } => {
                assert!(!self.is_there());
                self.0 = Some((zero(), alive(*expires_at)));
                self.make(&Change::Raise { column: *column, to: value.clone() });
            }
            Change::Patch { given } => {
                let row = self.0.as_mut().expect("a row");
                for (column, value) in *given {
                    row.0[*column] = interlock_rows::text::owned(value.clone());
                }
            }
            Change::Raise { column, to } => {
                self.0.as_mut().expect("a row").0[*column] = to.clone();
            }
            Change::Expire { at } => self.0.as_mut().expect("a row").1 = alive(*at),
            Change::Delete => self.0 = self.0.take().and(None),
        }
    }

    /// Executes a command and returns its reply as RESP.
    fn ask(&mut self, schema: &Schema, words: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut to = Writer { out: &mut out, resp3: false };
        match self.done(schema, words) {
            Ok(reply) => reply.write(&mut to),
            Err(Refusal(text)) => to.error(&text),
        }
        String::from_utf8_lossy(&out).replace("\r\n", " ").trim_end().to_owned()
    }

    fn done(&mut self, schema: &Schema, words: &[&[u8]]) -> Result<Reply, Refusal> {
        let verb = Verb::of(words)?.expect("a command");
        let command = parse(verb, schema, words, NOW)?;
        let (change, reply) = decide(&command, schema, self, NOW)?;
        if let Some(change) = &change {
            self.make(change);
        }
        Ok(reply)
    }
}

/// Runs commands and compares their replies.
fn script(lines: &[(&str, &str)]) {
    let schema = Schema::parse(SCHEMA).unwrap();
    let mut row = Plain::default();
    for (line, reply) in lines {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let before = row.clone();
        assert_eq!(row.ask(&schema, &words), *reply, "{line}");
        assert!(!reply.starts_with('-') || row == before, "{line}: an error changes nothing");
    }
}

#[test]
fn hash_commands_answer_as_redis_does() {
    script(&[
        ("HINCRBY t:k u 5", ":5"),
        ("HINCRBY t:k u 250", ":255"),
        ("HINCRBY t:k u 1", "-ERR increment or decrement would overflow"),
        ("HINCRBY t:k i -9223372036854775808", ":-9223372036854775808"),
        ("HINCRBY t:k i -1", "-ERR increment or decrement would overflow"),
        ("HINCRBY t:k f 1", "-ERR hash value is not an integer"),
        ("HINCRBY t:k u 1.5", "-ERR value is not an integer or out of range"),
        (
            "HINCRBY t:k z 1",
            "-NOCOLUMN there is no column 'z'; there are u, i, f, d, b, s, r",
        ),
        ("HINCRBYFLOAT t:k d 0.1", "$3 0.1"),
        ("HINCRBYFLOAT t:k f 1e300", "-ERR increment or decrement would overflow"),
        ("HINCRBYFLOAT t:k f 0.5", "$3 0.5"),
        ("HINCRBYFLOAT t:k u 1", "-ERR hash value is not a float"),
        ("HINCRBYFLOAT t:k d nan", "-ERR value is not a valid float"),
        ("HINCRBYFLOAT t:k d inf", "-ERR value is NaN or Infinity"),
        ("HINCRBYFLOAT t:k d x", "-ERR value is not a valid float"),
        ("HSET t:k u 1 u 2", ":0"),
        ("HSET t:k u", "-ERR wrong number of arguments for 'hset' command"),
        ("HSET t:k u 1 i", "-ERR wrong number of arguments for 'hset' command"),
        ("HSET t:k u 256", "-WRONGTYPE column u: 256 is not in 0 to 255"),
        ("HSET t:k u 256 b 2", "-WRONGTYPE column b is bool; allowed: 0 or 1"),
        ("HSET t:k u x", "-WRONGTYPE column u is U8; allowed: a whole number from 0 to 255"),
        ("HSET t:k s abcde", "-WRONGTYPE column s: 5 bytes; its size is 4"),
        ("HSET t:k d x", "-WRONGTYPE column d is F64; allowed: a number"),
        ("HMSET t:k s abcd r xyz", "+OK"),
        ("HSETNX t:k u 9", ":0"),
        ("HDEL t:k z", ":0"),
        (
            "HDEL t:k z u",
            "-ERR column u cannot be deleted: a row has all its columns; HSET sets one, DEL deletes \
             the row",
        ),
        ("TABLE POP t:k", "*7 $1 2 $20 -9223372036854775808 $3 0.5 $3 0.1 $1 0 $4 abcd $3 xyz"),
        ("HDEL t:k u", ":0"),
        ("HSETNX t:k u 9", ":1"),
        ("DEL t:k", ":1"),
        ("UNLINK t:k", ":0"),
        ("HSET t:k u 1 i 2 u 3", ":2"),
        ("DEL t:k", ":1"),
        ("HINCRBY t:k u 256", "-ERR increment or decrement would overflow"),
        ("HINCRBYFLOAT t:k f 1e300", "-ERR increment or decrement would overflow"),
        ("HINCRBYFLOAT t:k d -2.5", "$4 -2.5"),
    ]);
}

#[test]
fn time_to_live_commands_answer_as_redis_does() {
    script(&[
        ("EXPIRE t:k 10", ":0"),
        ("PERSIST t:k", ":0"),
        ("HSET t:k u 1", ":1"),
        ("EXPIRE t:k 10 XX GT", ":1"),
        ("EXPIRE t:k 10 GT", ":0"),
        ("EXPIRE t:k 10 LT", ":0"),
        ("PEXPIRE t:k 9999 LT", ":1"),
        ("EXPIRE t:k 11 NX", ":0"),
        ("PERSIST t:k", ":1"),
        ("PERSIST t:k", ":0"),
        ("EXPIRE t:k 11 XX", ":0"),
        ("EXPIRE t:k 11 gt", ":0"),
        ("EXPIRE t:k 11 lt", ":1"),
        ("EXPIREAT t:k 1700000020 nx", ":0"),
        ("EXPIREAT t:k 1700000020 gt", ":1"),
        ("PEXPIREAT t:k 1700000019999 gt", ":0"),
        ("PEXPIREAT t:k 1", ":1"),
        ("EXPIRE t:k 1 UP", "-ERR Unsupported option UP"),
        (
            "EXPIRE t:k 1 NX GT",
            "-ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        ("EXPIRE t:k 1 LT GT", "-ERR GT and LT options at the same time are not compatible"),
        ("EXPIRE t:k x", "-ERR value is not an integer or out of range"),
        ("EXPIRE t:k 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
        ("EXPIRE t:k 15768000001", "-ERR invalid expire time in 'expire' command"),
        ("EXPIRE t:k 15768000000", ":1"),
        ("PEXPIREAT t:k 17468000000001", "-ERR invalid expire time in 'pexpireat' command"),
        ("PEXPIREAT t:k 17468000000000", ":1"),
        ("EXPIREAT t:k -9223372036854775808", "-ERR invalid expire time in 'expireat' command"),
        ("EXPIRE t:k -1", ":1"),
    ]);
}

#[test]
fn table_commands_answer_as_documented() {
    script(&[
        ("TABLE SET t:k XX DEFAULT u 1", "$-1"),
        ("TABLE SET t:k UP DEFAULT", "-ERR syntax error: ANY, NX or XX"),
        ("TABLE SET t:k ANY SOON", "-ERR syntax error: DEFAULT, NEVER or milliseconds"),
        ("TABLE SET t:k ANY -1", "-ERR syntax error: DEFAULT, NEVER or milliseconds"),
        ("TABLE SET t:k ANY NEVER u", "-ERR wrong number of arguments for 'table|set' command"),
        ("TABLE SET t:k XX NEVER u 256", "-WRONGTYPE column u: 256 is not in 0 to 255"),
        ("TABLE PATCH t:k u 256", ":0"),
        ("TABLE PATCH t:k u x", "-WRONGTYPE column u is U8; allowed: a whole number from 0 to 255"),
        ("TABLE INCR t:k u 1", "$-1"),
        ("TABLE CAS t:k u 0 1", "$-1"),
        ("TABLE CAS t:k u 0 256", "-WRONGTYPE column u: 256 is not in 0 to 255"),
        ("TABLE CAS t:k s a abcde", "$-1"),
        ("TABLE POP t:k", "$-1"),
        ("TABLE SET t:k nx 5000 u 1", ":1"),
        ("TABLE SET t:k NX NEVER u 2", "$-1"),
        ("TABLE SET t:k any never u 2", ":0"),
        ("TABLE PATCH t:k u 3 s ab", ":1"),
        ("TABLE PATCH t:k u 256", "-WRONGTYPE column u: 256 is not in 0 to 255"),
        ("TABLE INCR t:k u 252", ":255"),
        ("TABLE INCR t:k u 1", "-ERR increment or decrement would overflow"),
        ("TABLE INCR t:k u 3 WRAP", ":2"),
        ("TABLE INCR t:k u -999 saturate", ":0"),
        ("TABLE INCR t:k u 1 UP", "-ERR syntax error: WRAP or SATURATE"),
        ("TABLE INCR t:k u 1 WRAP 1", "-ERR wrong number of arguments for 'table|incr' command"),
        ("TABLE INCR t:k s 1", "-WRONGTYPE column s is str[4]; allowed: no increment"),
        ("TABLE INCR t:k f 1e39 SATURATE", "$21 3.4028234663852886e38"),
        ("TABLE CAS t:k u 1 7", ":0"),
        ("TABLE CAS t:k u 0 7", ":1"),
        ("TABLE CAS t:k d -0 1", ":0"),
        ("TABLE CAS t:k d 0 1", ":1"),
        ("TABLE CAS t:k s ab abcde", "-WRONGTYPE column s: 5 bytes; its size is 4"),
        ("TABLE CAS t:k s abcdef abcd", ":0"),
        ("TABLE CAS t:k s ab abcd", ":1"),
        ("TABLE CAS t:k b 0 2", "-WRONGTYPE column b is bool; allowed: 0 or 1"),
    ]);
}

#[test]
fn rows_are_set_together_or_not_at_all() {
    let schema = Schema::parse(SCHEMA).unwrap();
    let refused = |line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        String::from_utf8(Rows::parse(&schema, &words[..]).unwrap_err().0).unwrap()
    };
    let count = "ERR wrong number of arguments for 'table|mset' command";
    for (line, text) in [
        ("TABLE MSET t 0 a 1", "ERR value is not an integer or out of range"),
        ("TABLE MSET t 8 a 1", "ERR value is not an integer or out of range"),
        ("TABLE MSET t x a 1", "ERR value is not an integer or out of range"),
        ("TABLE MSET t 2 u i", count),
        ("TABLE MSET t 2 u i k 1", count),
        ("TABLE MSET t 7 u i", count),
        ("TABLE MSET t 1 u a 256", "WRONGTYPE column u: 256 is not in 0 to 255"),
        ("TABLE MSET t 1 z a 2", "NOCOLUMN there is no column 'z'; there are u, i, f, d, b, s, r"),
    ] {
        assert_eq!(refused(line), text, "{line}");
    }
    assert_eq!(
        refused(&format!("TABLE MSET t 1 u{}", " k 1".repeat(MOST_ROWS + 1))),
        "ERR more than 1000 rows in one call"
    );
    let words: Vec<&[u8]> =
        "TABLE MSET t 2 u s a 1 x b 2 y".split(' ').map(str::as_bytes).collect();
    let rows = Rows::parse(&schema, &words[..]).unwrap();
    let text = |text: &'static str| Value::Str(text.into());
    let given: Vec<_> = rows.given().collect();
    assert_eq!(given[0], (&b"a"[..], &[(0, Value::Unsigned(1)), (5, text("x"))][..]));
    assert_eq!(given[1], (&b"b"[..], &[(0, Value::Unsigned(2)), (5, text("y"))][..]));
    assert_eq!(given.len(), 2);
}

/// Random words never panic, and a command that is accepted has only values that fit their columns.
#[test]
fn any_arguments_are_a_command_or_refused() {
    let schema = Schema::parse(SCHEMA).unwrap();
    let seed = fastrand::u64(..1 << 32);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let known: Vec<&[u8]> = "u i f d b s r NX xx gt ANY never default 0 1 -1 255 256 1e9 nan abcd \
                             18446744073709551615 -9223372036854775808 99999999999999999999999 \
                             wrap 2 15768000000 t t:k"
        .split(' ')
        .map(str::as_bytes)
        .chain([&b""[..], b"\xff\xfe", b"\0", b"a\r\nb"])
        .collect();
    let (mut row, mut done, mut refused) = (Plain::default(), 0, 0);
    for turn in 0..200_000 {
        if turn % 10 == 0 {
            row = Plain::default();
        }
        let &(_, name, ..) = &Verb::ALL[random.usize(0..Verb::ALL.len())];
        let mut words: Vec<Vec<u8>> = name.split('|').map(|word| word.into()).collect();
        let most = random.usize(0..8);
        words.extend((0..most).map(|_| {
            let mut word = known[random.usize(0..known.len())].to_vec();
            if random.u8(0..12) == 0 && !word.is_empty() {
                let at = random.usize(0..word.len());
                word[at] = random.u8(..);
            }
            word
        }));
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        match row.done(&schema, &words) {
            Ok(_) => done += 1,
            Err(_) => refused += 1,
        }
        let _ = Rows::parse(&schema, &words[..]);
        let mut held = vec![0; schema.words()];
        for (column, value) in schema.columns().iter().zip(row.0.iter().flat_map(|row| &row.0)) {
            column.write(&mut held, value).unwrap();
            assert!(column.read(&held) == *value || matches!(value, Value::Float(n) if n.is_nan()));
        }
    }
    assert!(done > 2_000 && refused > 2_000, "{done} done, {refused} refused");
}
