//! About the server: INFO.

use super::Call;
use crate::info;

pub fn info(call: &mut Call<'_, '_>) {
    let sections: Vec<&[u8]> = call.arguments.from(1).collect();
    let text = info::text(call.core.shared, call.core.now, &sections);
    call.reply.verbatim(&text);
}
