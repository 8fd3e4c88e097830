//! Which module of PyTorch a node was written for.
//!
//! The exporter of today (`dynamo=True`) notes the modules around each node; the older one makes the name of
//! a node of them.

use syncline_onnx::proto::NodeProto;

use super::torch_names::module_of;

/// The paths that the module of a node may have, best first, such as `body.2`; the path of the model itself
/// is empty. None where the file does not say.
///
/// Two where the last call of a module, `/drop_1/Dropout`, cannot be told from a module called `drop_1`.
pub(super) fn module_paths(node: &NodeProto) -> Vec<String> {
    if let Some(module) = module_of(node) {
        // What calls are numbered by.
        return vec![module.split('@').next().unwrap_or(module).to_owned()];
    }
    let Some(name) = node.name.strip_prefix('/') else { return Vec::new() };
    let (as_written, of_first_call) = (path(name, |part| part), path(name, first_call));
    if as_written == of_first_call { vec![as_written] } else { vec![as_written, of_first_call] }
}

/// The module in the name of a node of the older exporter, whichever call of it: `/enc/enc.0_1/Conv` belongs
/// to `enc.0`.
pub(super) fn first_call_path(node: &str) -> String {
    path(node.trim_start_matches('/'), first_call)
}

/// The module in the name of a node of the older exporter, without its first slash; its parts as `called`
/// makes them.
fn path<'n>(name: &'n str, called: impl Fn(&'n str) -> &'n str) -> String {
    let mut path: Vec<&str> = Vec::new();
    let mut parts: Vec<&str> = name.split('/').collect();
    // The operator.
    parts.pop();
    for part in parts {
        // A member of a sequence is named with it.
        let is_member = |outer: &&str| {
            called(part).strip_prefix(first_call(outer)).is_some_and(|rest| rest.starts_with('.'))
        };
        if path.last().is_some_and(is_member) {
            path.pop();
        }
        path.push(part);
    }
    path.into_iter().map(called).collect::<Vec<_>>().join(".")
}

/// The name of a module without the number of its call.
fn first_call(part: &str) -> &str {
    let numbered = part.rsplit_once('_').filter(|(_, call)| call.parse::<u32>().is_ok());
    numbered.map_or(part, |(module, _)| module)
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::proto::StringStringEntryProto;

    #[test]
    fn both_exporters_of_pytorch_say_the_module_of_a_node() {
        #[rustfmt::skip]
        let cases: [(&str, &str, &[&str]); 12] = [
            ("/body/body.2/Dropout",        "",                                       &["body.2"]),
            ("/layer1/layer1.0/drop/Dropout", "",                                     &["layer1.0.drop"]),
            ("/blk/drop_1/Dropout",         "",                                       &["blk.drop_1", "blk.drop"]),
            ("/enc_2/enc.0/Dropout",        "",                                       &["enc.0"]),
            ("/enc/enc.0_1/Dropout",        "",                                       &["enc.0_1", "enc.0"]),
            ("/Dropout",                    "",                                       &[""]),
            ("node_native_dropout__1",      "['', 'body', 'body.3', 'native_dropout']", &["body.3"]),
            ("node_native_dropout__1",      "['', 'native_dropout']",                 &[""]),
            ("node_native_dropout__1",      "['', 'blk', 'blk.drop@1', 'call']",      &["blk.drop"]),
            ("node_native_dropout__1",      "",                                       &[]),
            ("sequential/dropout/Dropout",  "",                                       &[]),
            ("",                            "",                                       &[]),
        ];
        for (name, scopes, want) in cases {
            let scopes = (!scopes.is_empty()).then(|| StringStringEntryProto {
                key: "pkg.torch.onnx.name_scopes".to_owned(),
                value: scopes.to_owned(),
            });
            let node = NodeProto {
                name: name.to_owned(),
                metadata_props: scopes.into_iter().collect(),
                ..NodeProto::default()
            };
            assert_eq!(module_paths(&node), want, "{name}");
        }
    }

    #[test]
    fn the_path_of_a_node_names_its_module_whichever_call_it_was() {
        #[rustfmt::skip]
        let cases = [
            ("/layers.0/linear1/MatMul", "layers.0.linear1"),
            ("/enc/enc.0/Conv",          "enc.0"),
            ("/enc/enc.0_1/Conv",        "enc.0"),
            ("/enc_2/fc/Gemm",           "enc.fc"),
            ("/Add",                     ""),
            ("",                         ""),
        ];
        for (node, want) in cases {
            assert_eq!(first_call_path(node), want, "{node}");
        }
    }
}
