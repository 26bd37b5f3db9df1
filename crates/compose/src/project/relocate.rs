//! Makes relative paths absolute in a file that is included from another directory.

use crate::{
    paths,
    yaml::{Node, Scalar, Value},
};

/// Every path of a file.
pub(super) fn file(root: &mut Node, directory: &str) {
    let Some(root) = root.as_mapping_mut() else { return };
    if let Some(services) = root.get_mut("services").and_then(Node::as_mapping_mut) {
        services.entries.iter_mut().for_each(|(_, node)| service(node, directory));
    }
    for section in ["secrets", "configs"] {
        let Some(section) = root.get_mut(section).and_then(Node::as_mapping_mut) else { continue };
        for (_, node) in &mut section.entries {
            if let Some(path) = node.as_mapping_mut().and_then(|mapping| mapping.get_mut("file")) {
                absolute(path, directory);
            }
        }
    }
}

/// Every path of a service.
pub(super) fn service(node: &mut Node, directory: &str) {
    let Some(mapping) = node.as_mapping_mut() else { return };
    for (key, value) in &mut mapping.entries {
        match &*key.name {
            "env_file" | "label_file" => each(value, |item| match item.as_mapping_mut() {
                Some(long) => long.get_mut("path").into_iter().for_each(|path| absolute(path, directory)),
                None => absolute(item, directory),
            }),
            "volumes" => each(value, |item| mount(item, directory)),
            "build" => match value.as_mapping_mut() {
                Some(build) => build.get_mut("context").into_iter().for_each(|path| absolute(path, directory)),
                None => absolute(value, directory),
            },
            _ => {}
        }
    }
}

fn mount(item: &mut Node, directory: &str) {
    if let Some(long) = item.as_mapping_mut() {
        let bind = long.get("type").and_then(Node::as_text) == Some("bind");
        if let Some(source) = long.get_mut("source").filter(|_| bind) {
            absolute(source, directory);
        }
        return;
    }
    let Some((source, rest)) = item.as_text().and_then(|text| text.split_once(':')) else { return };
    if source.starts_with('.') {
        let text = format!("{}:{rest}", paths::join(directory, source));
        set(item, &text);
    }
}

fn each(node: &mut Node, mut act: impl FnMut(&mut Node)) {
    match &mut node.value {
        Value::Sequence(items) => items.iter_mut().for_each(act),
        Value::Scalar(_) | Value::Mapping(_) => act(node),
    }
}

fn absolute(node: &mut Node, directory: &str) {
    let Some(text) = node.as_text() else { return };
    // A remote build context is not a path.
    if text.starts_with('~') || text.contains("://") {
        return;
    }
    let text = paths::join(directory, text);
    set(node, &text);
}

fn set(node: &mut Node, text: &str) {
    if let Value::Scalar(Scalar { text: old, .. }) = &mut node.value {
        *old = text.into();
    }
}
