//! The commands that Redis has for hashes. A row is one whose columns are all there, as long as it is.

use interlock_rows::{Read, Verb};

use super::{one, read};
use crate::command::Call;

pub fn hget(call: &mut Call<'_, '_>) {
    read(call, Read::Hget);
}

pub fn hmget(call: &mut Call<'_, '_>) {
    read(call, Read::Hmget);
}

pub fn hgetall(call: &mut Call<'_, '_>) {
    read(call, Read::Hgetall);
}

pub fn hkeys(call: &mut Call<'_, '_>) {
    read(call, Read::Hkeys);
}

pub fn hvals(call: &mut Call<'_, '_>) {
    read(call, Read::Hvals);
}

pub fn hlen(call: &mut Call<'_, '_>) {
    read(call, Read::Hlen);
}

pub fn hexists(call: &mut Call<'_, '_>) {
    read(call, Read::Hexists);
}

pub fn hstrlen(call: &mut Call<'_, '_>) {
    read(call, Read::Hstrlen);
}

pub fn hscan(call: &mut Call<'_, '_>) {
    read(call, Read::Hscan);
}

pub fn hset(call: &mut Call<'_, '_>) {
    one(call, Verb::Hset);
}

pub fn hmset(call: &mut Call<'_, '_>) {
    one(call, Verb::Hmset);
}

pub fn hsetnx(call: &mut Call<'_, '_>) {
    one(call, Verb::Hsetnx);
}

pub fn hdel(call: &mut Call<'_, '_>) {
    one(call, Verb::Hdel);
}

pub fn hincrby(call: &mut Call<'_, '_>) {
    one(call, Verb::Hincrby);
}

pub fn hincrbyfloat(call: &mut Call<'_, '_>) {
    one(call, Verb::Hincrbyfloat);
}
