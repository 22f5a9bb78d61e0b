//! Safe names: a topic as a name of a file or a folder, and back.
//!
//! `A-Za-z0-9_-.` are kept; any other byte is `%` and two hexadecimal digits, and so is a dot at
//! the beginning. The empty topic is `%`. A name longer than [`LONGEST`] is cut, and `%~` and 128 bits
//! of the topic's SHA-256 are appended; the index of its file has the full topic.

/// Most bytes of a name.
pub const LONGEST: usize = 180;
/// Ends the readable part of a name that was cut.
const CUT: &str = "%~";
const HASH: usize = 32;

/// Returns the name of a topic.
pub fn encode(topic: &[u8]) -> String {
    encode_within(topic, LONGEST)
}

/// Returns the name of a topic, of at most `longest` bytes. `longest` must be 40 or more.
pub fn encode_within(topic: &[u8], longest: usize) -> String {
    if topic.is_empty() {
        return "%".into();
    }
    let mut name = String::with_capacity(topic.len());
    let mut fits = 0;
    for (at, &byte) in topic.iter().enumerate() {
        match byte {
            b'.' if at == 0 => name.push_str("%2E"),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' => name.push(byte as char),
            _ => {
                name.push('%');
                name.push(DIGITS[usize::from(byte >> 4)] as char);
                name.push(DIGITS[usize::from(byte & 15)] as char);
            }
        }
        if name.len() + CUT.len() + HASH <= longest {
            fits = name.len();
        }
        if name.len() > longest {
            name.truncate(fits);
            name.push_str(CUT);
            for byte in &ring::digest::digest(&ring::digest::SHA256, topic).as_ref()[..HASH / 2] {
                name.push_str(&format!("{byte:02x}"));
            }
            return name;
        }
    }
    name
}

/// Returns the topic of a name. `None`: the name was cut, or `encode` does not return it.
pub fn decode(name: &str) -> Option<Vec<u8>> {
    if name == "%" {
        return Some(Vec::new());
    }
    let bytes = name.as_bytes();
    let (mut topic, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digit = |at: usize| (*bytes.get(at)? as char).to_digit(16);
            topic.push((digit(at + 1)? * 16 + digit(at + 2)?) as u8);
            at += 3;
        } else {
            topic.push(bytes[at]);
            at += 1;
        }
    }
    // Other spellings are refused, so that a topic has only one name.
    (!topic.is_empty() && encode(&topic) == name).then_some(topic)
}

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests {
    use crate::name::*;
    use fastrand::Rng;
    use std::collections::HashMap;

    #[test]
    fn file_names_are_as_documented() {
        for (topic, name) in [
            (&b"orders.new_1-A"[..], "orders.new_1-A"),
            (b"", "%"),
            (b"%", "%25"),
            (b".", "%2E"),
            (b"..", "%2E."),
            (b"../../x", "%2E.%2F..%2Fx"),
            (b"a b\n\0", "a%20b%0A%00"),
            ("é".as_bytes(), "%C3%A9"),
            (b"\xff\xfe", "%FF%FE"),
        ] {
            assert_eq!(encode(topic), name);
            assert_eq!(decode(name).as_deref(), Some(topic));
        }
        for none in ["", "%2", "%2e", "%41", "a/b", ".", ".a", "%zz", "é"] {
            assert_eq!(decode(none), None, "{none}");
        }
    }

    #[test]
    fn every_topic_has_a_safe_unique_file_name() {
        let mut rng = Rng::with_seed(crate::tests::seed());
        let mut known: HashMap<String, Vec<u8>> = HashMap::new();
        for _ in 0..crate::tests::share(30_000) {
            let length = [0, 1, 2, 3, 60, 179, 180, 181, 500, 10_240][rng.usize(0..10)];
            let odd: &[u8] = b"/.%\0\n~-aZ0\xff\xc3 ";
            let any = rng.bool();
            let byte = |rng: &mut Rng| if any { rng.u8(..) } else { odd[rng.usize(0..odd.len())] };
            let topic: Vec<u8> = (0..length).map(|_| byte(&mut rng)).collect();
            let name = encode(&topic);
            assert!(!name.is_empty() && name.len() <= LONGEST && name != "." && name != "..");
            let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.%~".contains(&byte);
            assert!(name.bytes().all(safe) && !name.starts_with('.'), "{name}");
            match decode(&name) {
                Some(back) => assert_eq!(back, topic),
                None => assert!(name.contains(CUT), "{name}"),
            }
            let before = known.insert(name, topic.clone());
            assert!(before.is_none_or(|before| before == topic));
        }
    }

    #[test]
    fn long_topics_with_a_common_prefix_have_distinct_names() {
        let (one, other) = ([b'a'; 10_240], [b'a'; 10_241]);
        let name = encode(&one);
        assert!(name.len() == LONGEST && name.starts_with("aaaa") && name.contains(CUT));
        assert_ne!(name, encode(&other));
        assert_eq!(encode(&[b'a'; LONGEST]).len(), LONGEST);
        assert!(decode(&encode(&[b'a'; LONGEST])).is_some());
    }
}
