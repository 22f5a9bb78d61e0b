//! The imports of the crate point one way, as the tables of its modules claim.

#[path = "../../interlock-core/tests/imports/table.rs"]
mod table;

#[test]
fn a_module_imports_only_what_stands_above_it() {
    table::check(env!("CARGO_MANIFEST_DIR"), "src/lib.rs");
    table::check(env!("CARGO_MANIFEST_DIR"), "src/file/mod.rs");
    table::check(env!("CARGO_MANIFEST_DIR"), "src/file/reading/mod.rs");
    table::check(env!("CARGO_MANIFEST_DIR"), "src/file/writing/mod.rs");
}
