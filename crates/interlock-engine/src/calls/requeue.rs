//! `il1_requeue`: a dead letter is put again, unchanged or edited.

use interlock_core::key::KeyRef;

use crate::calls::operate::key;
use crate::calls::put::said::{group, limit_names, run};
use crate::calls::put::{beside_names, room_is_kept, sealed, KEY_OVERHEAD};
use crate::queue::shared::Context;
use crate::queue::{Body, Queue};
use crate::values::args::{refuse, Args, Read, Reader};
use crate::values::reply;
use crate::values::scratch::Payload;
use crate::wire::codes::Code;
use crate::wire::limits::*;

impl Queue {
    /// Puts a dead letter again, or one like it with another payload, other keys and other names.
    pub(super) fn requeue(
        &mut self,
        id: u64,
        edit: Edit<'_>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let Some(dead) = self.scheduler.dead_letter(id) else {
            reply::array(out, 0);
            return Ok(());
        };
        if dead.barrier && edit.keys.as_ref().is_some_and(|keys| keys.count() > 0) {
            let text = format_args!("id {id} is a barrier, which takes no keys");
            return refuse(Code::BadArgument, "requeue", text);
        }
        if self.sealed {
            return Err(sealed("requeue"));
        }
        let body = &dead.payload;
        let bytes = edit.payload.map_or(body.data.len(), <[u8]>::len) as u64;
        let mut beside = edit.keys.as_ref().map_or(body.data.beside, |keys| {
            let had = dead.keys.iter().map(|(key, _)| key.as_bytes().len() as u32 + KEY_OVERHEAD);
            body.data.beside.saturating_sub(had.sum()) + keys.weight()
        });
        if let Some(names) = &edit.names {
            let had = beside_names(&dead.limit, &dead.group, &dead.run);
            beside = beside.saturating_sub(had) + names.weight();
        }
        // The bytes that come to those which its record has taken so far count as well.
        let weight = bytes + u64::from(beside);
        let edited =
            edit.payload.map(|data| Body { data: Payload::new(data, beside), result: body.result });
        self.too_large(1, bytes, "requeue")?;
        if self.scheduler.is_attentive() {
            let refs = |shared: bool| -> Vec<KeyRef<'_>> {
                let keys = dead.keys.iter().filter(|(_, s)| *s == shared);
                keys.map(|(key, _)| KeyRef::new(key.as_bytes())).collect()
            };
            let could = match &edit.keys {
                Some(keys) => self.scheduler.could_park(dead.behind, &keys.exclusive, &keys.shared),
                None => self.scheduler.could_park(dead.behind, &refs(false), &refs(true)),
            };
            self.room_to_park(if could { (1, bytes) } else { (0, 0) }, "requeue")?;
        }
        if let Some(refused) = self.no_room(1, bytes, "requeue") {
            return Err(refused);
        }
        if self.keeps_room(None) {
            return Err(room_is_kept("requeue"));
        }
        if weight > cx.free() {
            return Err(cx.out_of_memory(weight, "requeue"));
        }
        if let Some(body) = edited {
            self.weight += body.weight();
            let was = self.scheduler.edit_dead(id, body);
            self.weight -= was.as_ref().map_or(0, Body::weight);
        }
        if let Some(keys) = &edit.keys {
            self.scheduler.rekey_dead(id, &keys.exclusive, &keys.shared);
        }
        if let Some(names) = edit.names {
            self.scheduler.rename_dead(id, names.limit, names.group, names.run);
        }
        self.scheduler.carry(self.budget);
        let new = self.scheduler.requeue(cx.now, id).ok().flatten().expect("it is there, and room");
        self.took_room(true, None);
        self.note_cancelled();
        reply::array(out, 1);
        reply::number(out, new);
        Ok(())
    }
}

/// The parts of a dead letter that a requeue replaces.
#[derive(Default)]
pub(super) struct Edit<'a> {
    payload: Option<&'a [u8]>,
    keys: Option<NewKeys<'a>>,
    names: Option<NewNames<'a>>,
}

struct NewKeys<'a> {
    exclusive: Vec<KeyRef<'a>>,
    shared: Vec<KeyRef<'a>>,
}

/// Limit names, group and run, as a put has them; each may be empty.
struct NewNames<'a> {
    limit: Vec<u8>,
    group: &'a [u8],
    run: &'a [u8],
}

impl<'a> Edit<'a> {
    pub(super) fn read<A: Args + ?Sized>(from: &mut Reader<'a, A>) -> Read<Self> {
        if !from.more() {
            return Ok(Edit::default());
        }
        let payload = Some(from.text(MAX_PAYLOAD, || "payload".into())?);
        let keys = if from.more() { Some(NewKeys::read(from)?) } else { None };
        let names = if from.more() { Some(NewNames::read(from)?) } else { None };
        Ok(Edit { payload, keys, names })
    }
}

impl<'a> NewKeys<'a> {
    fn read<A: Args + ?Sized>(from: &mut Reader<'a, A>) -> Read<Self> {
        let exclusive = from.natural(0, MAX_KEYS, || "exclusive".into())?;
        let shared = from.natural(0, MAX_KEYS, || "shared".into())?;
        if exclusive + shared > MAX_KEYS {
            let text = format_args!("are {}; at most {MAX_KEYS}", exclusive + shared);
            return from.bad(|| "keys".into(), text);
        }
        let mut keys = |count: u64, name: &str| -> Read<Vec<KeyRef<'a>>> {
            (1..=count).map(|k| key(from, || format!("{name}[{k}]"))).collect()
        };
        Ok(NewKeys { exclusive: keys(exclusive, "exclusive")?, shared: keys(shared, "shared")? })
    }

    fn count(&self) -> usize {
        self.exclusive.len() + self.shared.len()
    }

    /// Bytes that they take of the bound on memory.
    fn weight(&self) -> u32 {
        let keys = self.exclusive.iter().chain(&self.shared);
        keys.map(|key| key.bytes.len() as u32 + KEY_OVERHEAD).sum()
    }
}

impl<'a> NewNames<'a> {
    fn read<A: Args + ?Sized>(from: &mut Reader<'a, A>) -> Read<Self> {
        let limit = read_name(from, |from| limit_names(from, || "LIMIT".into()))?;
        let group = read_name(from, |from| group(from, || "GROUP".into()))?;
        let run = read_name(from, |from| run(from, || "RUN".into()))?;
        Ok(NewNames { limit, group, run })
    }

    fn weight(&self) -> u32 {
        beside_names(&self.limit, self.group, self.run)
    }
}

/// Reads one of them; an empty text gives an empty name.
fn read_name<'a, A: Args + ?Sized, T: Default>(
    from: &mut Reader<'a, A>,
    read: impl FnOnce(&mut Reader<'a, A>) -> Read<T>,
) -> Read<T> {
    if from.more() && from.args.get(from.at).is_empty() {
        from.at += 1;
        return Ok(T::default());
    }
    read(from)
}
