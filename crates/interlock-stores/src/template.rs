//! Path templates: where the messages of a topic go, at a time.
//!
//! `[topic]`, `[date]` (2026-11-23), `[time]` (142359), `[hour]`, `[minute]`, `[host]`, `[store]`,
//! and text. A path is a folder, which has nothing in brackets, and below it the variable part: a
//! topic cannot leave that folder, for its name has no separator in it and is not a dot.

use std::fmt::Write as _;

use crate::calendar::Zone;
use crate::name;

/// A path template, relative to its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    folder: String,
    /// Folders and the file, each of some pieces.
    parts: Vec<Vec<Piece>>,
    zone: Zone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Topic,
    Date,
    Time,
    Hour,
    Minute,
}

/// Bytes that a name must leave to what is added: `-20261123T142359.000`, `.log.damaged-999`, `.idx`.
const ADDED: usize = 50;
/// Most bytes of a name on any of the usual file systems.
const NAME: usize = 255;
/// Most bytes of the host's and of the store's name in a path.
const SHORT: usize = 64;
/// Endings that stores give to other files than those they write messages to.
const OWN: [&str; 4] = ["idx", "zst", "new", "lock"];

impl Template {
    /// Reads a template; `host` and `store` replace these placeholders for good.
    ///
    /// # Errors
    ///
    /// Errors name what is wrong, and what is allowed.
    pub fn parse(text: &str, host: &str, store: &str, zone: Zone) -> Result<Template, String> {
        let wrong = |why: String| Err(format!("path = {text:?}: {why}"));
        if text.contains('\0') {
            return wrong("it has a NUL in it".into());
        }
        let (root, text_rest) = match text.strip_prefix('/') {
            Some(rest) => ("/", rest),
            None => ("", text),
        };
        let names: Vec<&str> = text_rest.split('/').filter(|name| *name != ".").collect();
        let Some((file, _)) = names.split_last() else { unreachable!("there is one at least") };
        if file.is_empty() {
            return wrong(
                "it ends with /; allowed: the path of a file, as in out/[topic].log".into(),
            );
        }
        if names.iter().any(|name| name.is_empty() || *name == "..") {
            return wrong("it has // or .. in it; allowed: the path of a file".into());
        }
        let above = names[..names.len() - 1].iter().take_while(|name| !name.contains('[')).count();
        let mut parts = Vec::new();
        for part in &names[above..] {
            match pieces(part, host, store) {
                Ok(pieces) => parts.push(pieces),
                Err(why) => return wrong(why),
            }
        }
        for part in &parts {
            let longest: usize = part.iter().map(Piece::longest).sum();
            if longest + ADDED > NAME {
                let most = NAME - ADDED;
                return wrong(format!("a name of up to {longest} bytes; allowed: {most}"));
            }
            if matches!(part.first(), Some(Piece::Text(text)) if text.starts_with('.')) {
                return wrong("a name begins with a dot".into());
            }
        }
        let ending = match parts.last().and_then(|part| part.last()) {
            Some(Piece::Text(text)) => text.rsplit_once('.').map(|(_, ending)| ending),
            _ => None,
        };
        match ending {
            None | Some("") => {
                return wrong("the file has no ending; allowed: one of its own, as .log".into())
            }
            Some(own) if OWN.contains(&own) => {
                return wrong(format!("a file that ends with .{own} is the store's own"))
            }
            Some(_) => {}
        }
        let folder = format!("{root}{}", names[..above].join("/"));
        let folder = if folder.is_empty() { ".".into() } else { folder };
        Ok(Template { folder, parts, zone })
    }

    /// The folder that all is in.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    pub fn zone(&self) -> Zone {
        self.zone
    }

    /// Returns whether each topic has files of its own.
    pub fn by_topic(&self) -> bool {
        self.parts.iter().flatten().any(|piece| *piece == Piece::Topic)
    }

    /// Minutes after which there is another path at the latest; `None`: it is the same for ever.
    pub fn minutes(&self) -> Option<u32> {
        let of = |piece: &Piece| match piece {
            Piece::Minute => Some(1),
            Piece::Hour => Some(60),
            Piece::Date => Some(24 * 60),
            // The part has the start time of a file, but its change starts no new one.
            Piece::Text(_) | Piece::Topic | Piece::Time => None,
        };
        self.parts.iter().flatten().filter_map(of).min()
    }

    /// Returns the path below the folder.
    pub fn expand(&self, topic: &[u8], time: u64) -> String {
        let moment = self.zone.moment(time);
        let mut path = String::new();
        for (n, part) in self.parts.iter().enumerate() {
            if n > 0 {
                path.push('/');
            }
            for piece in part {
                let _ = match piece {
                    Piece::Text(text) => path.write_str(text),
                    Piece::Topic => path.write_str(&name::encode(topic)),
                    Piece::Date => {
                        write!(path, "{:04}-{:02}-{:02}", moment.year, moment.month, moment.day)
                    }
                    Piece::Time => {
                        write!(path, "{:02}{:02}{:02}", moment.hour, moment.minute, moment.second)
                    }
                    Piece::Hour => write!(path, "{:02}", moment.hour),
                    Piece::Minute => write!(path, "{:02}", moment.minute),
                };
            }
        }
        path
    }

    /// Folders and file.
    pub fn depth(&self) -> usize {
        self.parts.len()
    }

    /// Returns the name of a topic's folder at this depth, if there is only one.
    pub fn only(&self, depth: usize, topic: Option<&[u8]>) -> Option<String> {
        let part = self.parts.get(depth).filter(|_| depth + 1 < self.parts.len())?;
        let mut name = String::new();
        for piece in part {
            match (piece, topic) {
                (Piece::Text(text), _) => name.push_str(text),
                (Piece::Topic, Some(topic)) => name.push_str(&name::encode(topic)),
                _ => return None,
            }
        }
        Some(name)
    }

    /// Returns whether a file or folder of this name, at this depth, may hold messages of `topic`;
    /// `None` is any topic. For a file only the beginning is compared, because suffixes are added
    /// to its name.
    pub fn may_hold(&self, depth: usize, name: &str, topic: Option<&[u8]>) -> bool {
        let Some(part) = self.parts.get(depth) else { return false };
        let mut rest = name;
        let last = depth + 1 == self.parts.len();
        for (n, piece) in part.iter().enumerate() {
            let fixed = match piece {
                Piece::Text(text) if last && n + 1 == part.len() => {
                    // The moment of a rotation precedes the ending.
                    let stem = text.rsplit_once('.').map_or(&text[..], |(stem, _)| stem);
                    return rest.starts_with(stem);
                }
                Piece::Text(text) => text.clone(),
                Piece::Topic => match topic {
                    Some(topic) => name::encode(topic),
                    None => return true,
                },
                digits => {
                    let length = digits.longest();
                    match rest.get(..length) {
                        Some(found) if found.bytes().all(|b| b.is_ascii_digit() || b == b'-') => {
                            rest = &rest[length..];
                            continue;
                        }
                        _ => return false,
                    }
                }
            };
            match rest.strip_prefix(fixed.as_str()) {
                Some(behind) => rest = behind,
                None => return false,
            }
        }
        last || rest.is_empty()
    }

    /// Returns the name that a file gets whose own name is needed anew: `time` is when it was begun.
    pub fn rotated(path: &str, time: u64, n: u32) -> String {
        let (stem, ending) = path.rsplit_once('.').unwrap_or((path, ""));
        format!("{stem}-{}.{n:03}.{ending}", Template::moment(time))
    }

    /// Returns a time as such a name has it.
    pub fn moment(time: u64) -> String {
        let m = Zone::Utc.moment(time);
        let (date, time) = ((m.year, m.month, m.day), (m.hour, m.minute, m.second));
        format!("{:04}{:02}{:02}T{:02}{:02}{:02}", date.0, date.1, date.2, time.0, time.1, time.2)
    }
}

impl Piece {
    /// Most bytes it takes.
    fn longest(&self) -> usize {
        match self {
            Piece::Text(text) => text.len(),
            Piece::Topic => name::LONGEST,
            Piece::Date => 10,
            Piece::Time => 6,
            Piece::Hour | Piece::Minute => 2,
        }
    }
}

fn pieces(part: &str, host: &str, store: &str) -> Result<Vec<Piece>, String> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut rest = part;
    let push = |text: &str, pieces: &mut Vec<Piece>| match pieces.last_mut() {
        _ if text.is_empty() => {}
        Some(Piece::Text(before)) => before.push_str(text),
        _ => pieces.push(Piece::Text(text.into())),
    };
    while let Some(open) = rest.find('[') {
        push(&rest[..open], &mut pieces);
        let Some(close) = rest[open..].find(']') else {
            return Err("a [ without its ]".into());
        };
        match &rest[open + 1..open + close] {
            "topic" => pieces.push(Piece::Topic),
            "date" => pieces.push(Piece::Date),
            "time" => pieces.push(Piece::Time),
            "hour" => pieces.push(Piece::Hour),
            "minute" => pieces.push(Piece::Minute),
            "host" => push(&name::encode_within(host.as_bytes(), SHORT), &mut pieces),
            "store" => push(&name::encode_within(store.as_bytes(), SHORT), &mut pieces),
            other => {
                return Err(format!(
                    "[{other}] is unknown; allowed: [topic], [date], [time], [hour], [minute], \
                     [host], [store]"
                ))
            }
        }
        rest = &rest[open + close + 1..];
    }
    if rest.contains(']') {
        return Err("a ] without its [".into());
    }
    push(rest, &mut pieces);
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use crate::template::*;

    fn parse(text: &str) -> Result<Template, String> {
        Template::parse(text, "web.1", "keep all", Zone::Utc)
    }

    const NOON: u64 = 1_795_435_199 * 1_000_000;

    #[test]
    fn a_template_is_split_into_a_folder_and_its_variable_part() {
        for (text, folder, path, by_topic, minutes) in [
            ("out/[topic]/[date].log", "out", "a.b/2026-11-23.log", true, Some(1440)),
            ("/var/log/hub/all.log", "/var/log/hub", "all.log", false, None),
            ("all.log", ".", "all.log", false, None),
            ("./o/[topic]-[time].log", "o", "a.b-115959.log", true, None),
            ("[date]/[hour]/[minute].x.log", ".", "2026-11-23/11/59.x.log", false, Some(1)),
            ("o/[host]/p/[store]-[topic].log", "o", "web.1/p/keep%20all-a.b.log", true, None),
        ] {
            let template = parse(text).unwrap();
            assert_eq!(template.folder(), folder, "{text}");
            assert_eq!(template.expand(b"a.b", NOON), path, "{text}");
            assert_eq!((template.by_topic(), template.minutes()), (by_topic, minutes), "{text}");
            let names: Vec<&str> = path.split('/').collect();
            for (depth, name) in names.iter().enumerate() {
                assert!(template.may_hold(depth, name, Some(b"a.b")), "{text} {name}");
                assert!(template.may_hold(depth, name, None), "{text} {name}");
            }
            let rotated = Template::rotated(path, NOON, 7);
            let last = rotated.rsplit('/').next().unwrap();
            assert!(template.may_hold(names.len() - 1, last, Some(b"a.b")), "{text} {last}");
            assert!(rotated.as_str() < path, "what was rotated sorts before what is written to");
        }
        let template = parse("out/[topic]/[date].log").unwrap();
        assert!(!template.may_hold(0, "a.c", Some(b"a.b")));
        assert_eq!(template.only(0, Some(b"a.b")).as_deref(), Some("a.b"));
        assert_eq!(template.only(0, None), None);
        assert!(!template.may_hold(0, "a.b2", Some(b"a.b")));
        assert!(!template.may_hold(1, "today.log", Some(b"a.b")));
        assert!(!template.may_hold(2, "x", Some(b"a.b")));
    }

    #[test]
    fn an_invalid_file_path_is_refused_with_the_allowed_form() {
        for (text, why) in [
            ("out/", "ends with /"),
            ("", "ends with /"),
            ("../[topic].log", ".."),
            ("out/../x.log", ".."),
            ("out//x.log", "//"),
            ("out/[topic]", "no ending"),
            ("out/[topic].", "no ending"),
            ("out/x[date].idx", "the store's own"),
            ("out/[tpoic].log", "allowed: [topic], [date]"),
            ("out/[topic.log", "without its ]"),
            ("out/topic].log", "without its ["),
            ("out/[topic][topic].log", "allowed: 205"),
            ("out/.[topic].log", "dot"),
            ("o\0.log", "NUL"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why) && error.starts_with("path = "), "{text}: {error}");
        }
    }

    #[test]
    fn rotated_names_sort_by_start_time() {
        let names: Vec<String> = [(NOON, 0), (NOON, 1), (NOON + 1_000_000, 0)]
            .map(|(time, n)| Template::rotated("a/2026-11-23.log", time, n))
            .into();
        assert_eq!(names[1], "a/2026-11-23-20261123T115959.001.log");
        assert!(names.is_sorted());
        assert!(names[2].as_str() < "a/2026-11-23.log");
        assert!("a/2026-11-22.log" < names[0].as_str());
    }

    #[test]
    fn no_topic_leaves_the_folder() {
        let template = parse("out/[topic]/[topic].log").unwrap();
        for topic in [&b"../../x"[..], b"..", b".", b"/", b"a/../../b", b"\0", b"", b"\n"] {
            let path = template.expand(topic, NOON);
            let names: Vec<&str> = path.split('/').collect();
            assert_eq!(names.len(), 2, "{path}");
            assert!(names.iter().all(|name| !["", ".", ".."].contains(name)), "{path}");
        }
    }
}
