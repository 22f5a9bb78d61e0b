//! A crate's table of modules, and whether its sources keep to the order.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Checks the modules beside `root`, a `lib.rs` or `mod.rs` whose documentation has a table of
/// them: each imports only modules of rows above its own. A row may name several, in their order.
/// Code after `#[cfg(test)]` may import anything.
pub fn check(crate_folder: &str, root: &str) {
    let root = Path::new(crate_folder).join(root);
    let text = fs::read_to_string(&root).expect("the root is there");
    let order = table(&text);
    assert!(order.len() > 1, "{} has a table of its modules", root.display());
    for name in text.lines().filter_map(declared) {
        assert!(order.contains_key(name), "{name} has no row in {}", root.display());
    }
    let prefix = prefix(&root);
    let folder = root.parent().expect("a folder");
    let mut wrong = Vec::new();
    for (module, &place) in &order {
        let files = files_of(folder, module);
        assert!(!files.is_empty(), "{module} has a row in {}, and no file", root.display());
        for file in files {
            let text = fs::read_to_string(&file).expect("a source");
            let mut imported = imports(&text, &prefix);
            if file.parent() == Some(folder) {
                imported.extend(imports(&text, "super::"));
            }
            for imported in imported {
                let above = order.get(imported.as_str()).is_none_or(|&other| other < place);
                if !above && imported != *module {
                    wrong.push(format!("{}: {prefix}{imported}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "these point the wrong way:\n{}", wrong.join("\n"));
}

/// The modules of the rows, each with its place.
fn table(text: &str) -> HashMap<&str, usize> {
    let rows = text.lines().filter(|line| line.starts_with("//! | "));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.enumerate().map(|(place, name)| (name, place)).collect()
}

fn declared(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    line.strip_prefix("mod ")?.strip_suffix(';')
}

/// The path by which a module of this folder is imported: `crate::`, or `crate::queue::`.
fn prefix(root: &Path) -> String {
    let folder = root.parent().expect("a folder");
    let path = folder.components().skip_while(|part| part.as_os_str() != "src").skip(1);
    let parts = path.map(|part| format!("{}::", part.as_os_str().to_string_lossy()));
    format!("crate::{}", parts.collect::<String>())
}

/// The file of a module, and those of its folder.
fn files_of(folder: &Path, module: &str) -> Vec<PathBuf> {
    let mut files = vec![folder.join(format!("{module}.rs"))];
    let mut open = vec![folder.join(module)];
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() { &mut open } else { &mut files }.push(path);
        }
    }
    let is_source = |file: &PathBuf| file.exists() && file.extension().is_some_and(|e| e == "rs");
    files.retain(is_source);
    files
}

/// The modules behind each `prefix` of a source's code.
fn imports(text: &str, prefix: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    let name = |rest: &str| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        rest[..end].to_owned()
    };
    let mut found = Vec::new();
    for rest in code.split(prefix).skip(1) {
        match rest.strip_prefix('{') {
            // `use crate::{a, b::{c, d}};`: the names in the outer braces.
            Some(list) => {
                let mut depth = 0;
                let mut fresh = true;
                for (at, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => fresh = true,
                        c if fresh && !c.is_whitespace() => {
                            found.push(name(&list[at..]));
                            fresh = false;
                        }
                        _ => {}
                    }
                }
            }
            None => found.push(name(rest)),
        }
    }
    found
}
