//! Every way in which files can be missing, and every reader: what there is is delivered once and in order,
//! what is missing is reported with its position.

use std::fs;
use std::path::PathBuf;

use interlock_stores::disk::folder::Folder;
use interlock_stores::file::{verify_all, FileStore, Found, Missing, Rotation, Settings, Survey};
use interlock_stores::{Position, Stored};

use crate::everyday::{message, settings, Scratch, NOON, SECOND};
use crate::model::reader;

const FRAME: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    DataRemoved,
    BothRemoved,
    /// As logrotate does it.
    DataRenamed,
    /// Another name that is one of the topic's.
    BothRenamed,
    IndexRemoved,
    IndexEmpty,
    IndexHeadChanged,
    IndexCut,
    IndexCutInRecord,
    RecordChanged,
    DataChanged,
    DataCut,
    Compressed,
}

use Way::*;

const WAYS: [Way; 13] = [
    DataRemoved,
    BothRemoved,
    DataRenamed,
    BothRenamed,
    IndexRemoved,
    IndexEmpty,
    IndexHeadChanged,
    IndexCut,
    IndexCutInRecord,
    RecordChanged,
    DataChanged,
    DataCut,
    Compressed,
];

struct Files {
    scratch: Scratch,
    folder: Folder,
    settings: Settings,
    /// Paths of data in their order, each with the messages of topic `t` in it.
    files: Vec<(PathBuf, Vec<Stored>)>,
}

impl Files {
    fn new(path: &str) -> Files {
        let scratch = Scratch::new("missing");
        let folder = Folder::new(&scratch.0);
        let rotation = Rotation { size: Some(100), minutes: None };
        let settings = Settings { rotation, ..settings(path) };
        let (mut store, _) = FileStore::open(folder.clone(), settings.clone(), NOON).unwrap();
        for n in 0..40u64 {
            for topic in [b"t", b"u"] {
                let payload = format!("number {n:03}");
                store.append(&message(topic, payload.as_bytes(), NOON + n * SECOND)).unwrap();
            }
            store.commit().unwrap();
        }
        store.close().unwrap();
        let mut files = Files { scratch, folder, settings, files: Vec::new() };
        let names = fs::read_dir(&files.scratch.0).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".log")).collect();
        names.sort();
        for name in names {
            let (found, missing) = files.survey(Some(&name), Position::FIRST);
            assert!(missing.is_empty(), "{missing:?}");
            if found.iter().any(|one| one.topic == b"t") {
                files.files.push((files.scratch.0.join(&name), found));
            }
        }
        assert!(files.files.len() > 4, "{:?}", files.files);
        files
    }

    fn survey(&self, file: Option<&str>, from: Position) -> (Vec<Stored>, Vec<Missing>) {
        split(&mut Survey::new(self.folder.clone(), file, Some(b"t"), from))
    }

    /// Does it to a file; returns the messages that cannot be read any more.
    fn damage(&self, way: Way, place: usize) -> Vec<Stored> {
        let (data, messages) = &self.files[place];
        let (data, messages) = (data.clone(), messages.clone());
        let name = data.to_str().unwrap().to_owned();
        let index = PathBuf::from(format!("{name}.idx"));
        let half = messages.len() / 2;
        let head = |bytes: &[u8]| u32::from_le_bytes(bytes[52..56].try_into().unwrap()) as usize;
        // The records of `t` in the index, where there are others between.
        let record = |bytes: &[u8], n: usize| {
            let sequence = messages[n].sequence.to_le_bytes();
            let is = |frame: &[u8]| frame[4] == 5 && frame[8..16] == sequence;
            let all = bytes.chunks_exact(FRAME).skip(head(bytes));
            FRAME * (head(bytes) + all.into_iter().position(is).unwrap())
        };
        match way {
            DataRemoved => fs::remove_file(&data).unwrap(),
            BothRemoved => {
                fs::remove_file(&data).unwrap();
                fs::remove_file(&index).unwrap();
            }
            DataRenamed => fs::rename(&data, format!("{name}.1")).unwrap(),
            BothRenamed => {
                let other = name.replace(".log", "-moved.log");
                fs::rename(&data, &other).unwrap();
                fs::rename(&index, other + ".idx").unwrap();
                return Vec::new();
            }
            IndexRemoved => fs::remove_file(&index).unwrap(),
            IndexEmpty => fs::write(&index, b"").unwrap(),
            IndexHeadChanged => change(&index, |bytes| bytes[30] ^= 1),
            IndexCut => {
                change(&index, |bytes| bytes.truncate(record(bytes, half)));
                return messages[half..].to_vec();
            }
            IndexCutInRecord => {
                change(&index, |bytes| bytes.truncate(record(bytes, half) + FRAME / 2));
                return messages[half..].to_vec();
            }
            RecordChanged => {
                change(&index, |bytes| {
                    let at = record(bytes, half);
                    bytes[at + 20] ^= 1;
                });
                return vec![messages[half].clone()];
            }
            DataChanged | DataCut => {
                let bytes = fs::read(&index).unwrap();
                let at = record(&bytes, half);
                let offset = u64::from_le_bytes(bytes[at + 16..at + 24].try_into().unwrap());
                let offset = offset as usize;
                if way == DataCut {
                    change(&data, |bytes| bytes.truncate(offset + 1));
                    return messages[half..].to_vec();
                }
                change(&data, |bytes| bytes[offset] ^= 1);
                return vec![messages[half].clone()];
            }
            Compressed => {
                let raw = fs::read(&data).unwrap();
                let packed = zstd::bulk::compress(&raw, 3).unwrap();
                fs::write(format!("{name}.zst"), packed).unwrap();
                fs::remove_file(&data).unwrap();
                return Vec::new();
            }
        }
        messages
    }
}

fn change(path: &PathBuf, how: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    how(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn split(survey: &mut Survey<Folder>) -> (Vec<Stored>, Vec<Missing>) {
    parts(|| survey.next().unwrap())
}

/// Messages and gaps; gaps must be in the place of what is missing.
fn parts(mut next: impl FnMut() -> Option<Found>) -> (Vec<Stored>, Vec<Missing>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    while let Some(next) = next() {
        match next {
            Found::Message(stored) => found.push(stored),
            Found::Missing(one) => missing.push(one),
        }
    }
    (found, missing)
}

fn covers(missing: &[Missing], lost: &[Stored]) -> bool {
    let known = |at: Position| missing.iter().any(|one| (one.from..=one.to).contains(&at));
    lost.iter().all(|one| known(one.position))
}

fn check(path: &str, way: Way, place: usize) {
    let files = Files::new(path);
    let place = if place == 9 { files.files.len() - 1 } else { place };
    let is_first = place == 0;
    let is_last = place + 1 == files.files.len();
    let all: Vec<Stored> = files.files.iter().flat_map(|(_, found)| found.clone()).collect();
    let lost = files.damage(way, place);
    let left: Vec<Stored> = all.iter().filter(|one| !lost.contains(one)).cloned().collect();
    let what = format!("{path}: {way:?} of file {place}");
    // No information survives about the end of the newest file after its last record, or before the
    // oldest file.
    let no_index = [IndexRemoved, IndexEmpty, IndexHeadChanged, BothRemoved].contains(&way);
    let cut = [IndexCut, IndexCutInRecord].contains(&way);
    let untold = no_index && (is_first || is_last) || cut && is_last;

    let reader = reader(&files.folder, &files.settings.template, b"t");
    let mut forward = reader.forward(Position::FIRST);
    let (found, missing) = parts(|| forward.find().unwrap());
    assert_eq!(found, left, "{what}");
    assert_eq!(covers(&missing, &lost), lost.is_empty() || !untold, "{what}: {missing:?}");
    assert!(
        missing.iter().all(|one| covers(std::slice::from_ref(one), &lost[..1])),
        "{what}: {missing:?}"
    );
    let told: u64 = missing.iter().map(|one| one.messages).sum();
    if path == "[topic].log" && !untold {
        assert_eq!(told, lost.len() as u64, "{what}: {missing:?}");
    }
    assert!(forward.find().unwrap().is_none(), "{what}: it is reported once");

    let mut backward = reader.backward(Position::LAST).unwrap();
    let (mut back, missing_back) = parts(|| backward.find().unwrap());
    back.reverse();
    assert_eq!(back, left, "{what}: backward");
    assert_eq!(
        covers(&missing_back, &lost),
        lost.is_empty() || !untold,
        "{what}: {missing_back:?}"
    );

    // From each message on, and to each: what is missing outside is not told.
    for one in all.iter().step_by(3) {
        let at = one.position;
        let mut forward = reader.forward(at);
        let (found, missing) = parts(|| forward.find().unwrap());
        let behind: Vec<Stored> = left.iter().filter(|one| one.position >= at).cloned().collect();
        assert_eq!(found, behind, "{what}: from {at}");
        assert!(missing.iter().all(|one| one.from >= at), "{what}: from {at}: {missing:?}");
        let mut backward = reader.between(Position::FIRST, at).unwrap();
        let (mut found, missing) = parts(|| backward.find().unwrap());
        found.reverse();
        let before: Vec<Stored> = left.iter().filter(|one| one.position <= at).cloned().collect();
        assert_eq!(found, before, "{what}: to {at}");
        assert!(missing.iter().all(|one| one.to <= at), "{what}: to {at}: {missing:?}");
    }

    // It is not looked into closed files to count.
    let changed = u64::from([DataChanged, RecordChanged].contains(&way));
    let most = left.len() as u64 + changed;
    assert!((left.len() as u64..=most).contains(&reader.count().unwrap()), "{what}");

    let mut survey = Survey::new(files.folder.clone(), None, Some(b"t"), Position::FIRST);
    let (found, missing) = split(&mut survey);
    assert_eq!(found, left, "{what}: survey");
    let amiss = !survey.unreadable().is_empty() || !survey.trailing().unwrap().is_empty();
    let removed = way == BothRemoved && (is_first || is_last);
    let told = covers(&missing, &lost) || amiss;
    assert_eq!(told, !removed, "{what}: {missing:?} {:?}", survey.unreadable());
    let verified = verify_all(&files.folder, None).unwrap();
    let is_whole = verified.files.iter().all(|one| one.is_whole())
        && verified.missing.is_empty()
        && verified.unreadable.is_empty();
    assert_eq!(is_whole, lost.is_empty() || removed, "{what}: {verified:?}");

    // The next store continues after it, and the gap is still reported.
    if way == IndexEmpty && is_last {
        return; // It is taken for one that was being made.
    }
    let (mut store, _) =
        FileStore::open(files.folder.clone(), files.settings.clone(), NOON).unwrap();
    store.append(&message(b"t", b"the next one", NOON + 99 * SECOND)).unwrap();
    store.commit().unwrap();
    let mut forward = reader.forward(Position::FIRST);
    let (found, _) = parts(|| forward.find().unwrap());
    let kept = found.iter().filter(|one| left.contains(one)).count();
    assert_eq!((kept, found.len()), (left.len(), left.len() + 1), "{what}: {found:?}");
}

#[test]
fn every_reader_reports_missing_messages() {
    for path in ["[topic].log", "all.log"] {
        for way in WAYS {
            for place in [0, 3, 9] {
                check(path, way, place);
            }
        }
    }
}
