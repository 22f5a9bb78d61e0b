//! Patterns of topics, with the syntax of Redis' `stringmatchlen`.
//!
//! Only `*` can match in more than one way, and once a later `*` is reached, an earlier one need
//! not be retried. So one position to return to is enough, and the cost is at most the product of
//! the two lengths.

/// Maximum bytes of a pattern and of a topic. A publish compares the topic with each subscriber's
/// pattern, and one comparison must not block the worker.
pub const LONGEST_PATTERN: usize = 1024;
pub const LONGEST_TOPIC: usize = 4096;

/// Returns the error if the pattern is too long.
pub fn refusal(pattern: &[u8]) -> Option<String> {
    let length = pattern.len();
    (length > LONGEST_PATTERN).then(|| {
        format!("ERR a pattern may have up to {LONGEST_PATTERN} bytes, this one has {length}")
    })
}

/// Returns the error if the topic is too long.
pub fn topic_refusal(topic: &[u8]) -> Option<String> {
    let length = topic.len();
    (length > LONGEST_TOPIC)
        .then(|| format!("ERR a topic may have up to {LONGEST_TOPIC} bytes, this one has {length}"))
}

/// Returns whether `text` matches the whole of `pattern`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // The pattern's position after the last star, and the first byte of the text not yet tried
    // there.
    let mut star: Option<(usize, usize)> = None;
    while p < pattern.len() && t < text.len() {
        if pattern[p] == b'*' {
            while pattern.get(p) == Some(&b'*') {
                p += 1;
            }
            if p == pattern.len() {
                return true;
            }
            star = Some((p, t + 1));
            continue;
        }
        if let Some(next) = one(pattern, p, text[t]) {
            (p, t) = (next, t + 1);
            if t < text.len() {
                if p < pattern.len() {
                    continue;
                }
            } else {
                // Each element matches exactly one byte: at the end of the text only stars may
                // follow.
                return pattern[p..].iter().all(|&byte| byte == b'*');
            }
        }
        match star {
            Some((behind, from)) if from < text.len() => {
                star = Some((behind, from + 1));
                (p, t) = (behind, from);
            }
            _ => return false,
        }
    }
    // As in Redis, `*` does not match an empty text.
    p == pattern.len() && t == text.len()
}

/// Returns the number of bytes at the start of `pattern` that are not special.
pub fn literal_prefix(pattern: &[u8]) -> usize {
    pattern.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(pattern.len())
}

/// Returns the runs of bytes that a text must contain to match `pattern`, in order. The last one is empty unless
/// the text must end with it.
pub fn literal_runs(pattern: &[u8]) -> Vec<Vec<u8>> {
    let (mut runs, mut p) = (vec![Vec::new()], 0);
    while p < pattern.len() {
        let (literal, next) = match pattern[p] {
            b'*' | b'?' => (None, p + 1),
            b'[' => (None, class(pattern, p + 1, 0).1),
            b'\\' if p + 1 < pattern.len() => (Some(pattern[p + 1]), p + 2),
            byte => (Some(byte), p + 1),
        };
        p = next;
        match (literal, runs.last_mut()) {
            (Some(byte), Some(last)) => last.push(byte),
            (None, Some(last)) if last.is_empty() => {}
            _ => runs.push(Vec::new()),
        }
    }
    runs
}

/// Returns the position after the element at `p` if the element matches `byte`.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match pattern[p] {
        b'?' => Some(p + 1),
        b'[' => {
            let (matches, next) = class(pattern, p + 1, byte);
            matches.then_some(next)
        }
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        literal => (literal == byte).then_some(p + 1),
    }
}

/// Returns whether a class matches, and the position after it. A class without a closing bracket ends with
/// the pattern.
fn class(pattern: &[u8], mut p: usize, byte: u8) -> (bool, usize) {
    let negated = pattern.get(p) == Some(&b'^');
    p += usize::from(negated);
    let mut found = false;
    loop {
        match &pattern[p.min(pattern.len())..] {
            [] => break,
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                p += 2;
            }
            [b']', ..] => {
                p += 1;
                break;
            }
            [start, b'-', end, ..] => {
                // Redis compares the platform's plain `char`, which is signed on x86.
                let (start, end, byte) = (*start as i8, *end as i8, byte as i8);
                found |= (start.min(end)..=start.max(end)).contains(&byte);
                p += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                p += 1;
            }
        }
    }
    (found != negated, p)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transcription of Redis' own function, including its recursion.
    fn redis(mut pattern: &[u8], mut text: &[u8]) -> bool {
        while !pattern.is_empty() && !text.is_empty() {
            match pattern[0] {
                b'*' => {
                    while pattern.get(1) == Some(&b'*') {
                        pattern = &pattern[1..];
                    }
                    if pattern.len() == 1 {
                        return true;
                    }
                    return (0..text.len()).any(|skip| redis(&pattern[1..], &text[skip..]));
                }
                _ => {
                    let Some(next) = one(pattern, 0, text[0]) else { return false };
                    pattern = &pattern[next..];
                    text = &text[1..];
                }
            }
            if text.is_empty() {
                while pattern.first() == Some(&b'*') {
                    pattern = &pattern[1..];
                }
                break;
            }
        }
        pattern.is_empty() && text.is_empty()
    }

    #[test]
    fn any_short_pattern_matches_as_in_redis() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut matched = 0;
        for _ in 0..200_000 {
            let mut string = |from: &[u8], most: usize| -> Vec<u8> {
                (0..random.usize(0..=most)).map(|_| from[random.usize(0..from.len())]).collect()
            };
            let (pattern, text) = (string(b"ab*?[]^-\\", 7), string(b"ab]-", 6));
            let expected = redis(&pattern, &text);
            matched += usize::from(expected);
            assert_eq!(
                matches(&pattern, &text),
                expected,
                "{:?} on {:?}",
                String::from_utf8_lossy(&pattern),
                String::from_utf8_lossy(&text)
            );
        }
        assert!(matched > 1000, "{matched}");
    }

    #[test]
    fn literal_runs_are_what_every_matching_text_contains() {
        for (pattern, expected) in [
            ("", &[""][..]),
            ("ab", &["ab"]),
            ("*:42", &[":42"]),
            ("a*", &["a", ""]),
            ("?x*", &["x", ""]),
            ("a[b]]c\\*d", &["a", "]c*d"]),
            ("*ab?cd**", &["ab", "cd", ""]),
            ("a\\", &["a\\"]),
            ("a[b", &["a", ""]),
        ] {
            let found = literal_runs(pattern.as_bytes());
            let expected: Vec<Vec<u8>> = expected.iter().map(|run| run.as_bytes().into()).collect();
            assert_eq!(found, expected, "{pattern}");
        }
    }

    #[test]
    fn patterns_of_the_redis_documentation_match_as_documented() {
        for (pattern, text, expected) in [
            ("h?llo", "hallo", true),
            ("h*llo", "hllo", true),
            ("h*llo", "heeello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hallo", false),
            ("*", "", false),
            ("", "", true),
            ("a[b", "ab", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_the_product_of_the_lengths() {
        let pattern = b"a*".repeat(200);
        let text = b"a".repeat(20_000);
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
    }
}
