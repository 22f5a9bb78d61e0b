//! About the server: INFO.

pub(super) mod acl;
pub(super) mod backup;
pub(super) mod control;
pub(super) mod documented;
pub(super) mod slow;
pub(super) mod status;

use super::Call;
use crate::command::info;

pub fn info(call: &mut Call<'_, '_>) {
    // Counts the commands of the current turn too.
    call.core.local.count(call.core.shared, call.core.now);
    let sections: Vec<&[u8]> = call.arguments.from(1).collect();
    let text = info::text(call.core.shared, call.core.now, &sections);
    call.reply.verbatim(&text);
}
