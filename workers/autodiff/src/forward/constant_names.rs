//! What the name of a constant says about it: the names that PyTorch and widespread code give to parameters
//! and buffers.

/// Whether modules of PyTorch and widespread code call a parameter so. `is_there` knows the other names of
/// the model.
pub(super) fn is_parameter(name: &str, is_there: impl Fn(&str) -> bool) -> bool {
    const WHOLE: [&str; 22] = [
        "weight",
        "bias",
        "gamma",
        "beta",
        "kernel",
        "cls_token",
        "class_token",
        "dist_token",
        "mask_token",
        "reg_token",
        "register_tokens",
        "class_embedding",
        "pos_embed",
        "pos_embedding",
        "position_embedding",
        "position_embeddings",
        "positional_embedding",
        "relative_position_bias_table",
        "logit_scale",
        "original",
        "original0",
        "original1",
    ];
    let (owner, last) = split(name);
    if is_spectral(owner, last, is_there) {
        return false;
    }
    let affixed = ["weight_", "bias_"].iter().any(|start| last.starts_with(start))
        || ["_weight", "_bias"].iter().any(|end| last.ends_with(end));
    (affixed && last != "masked_bias") || WHOLE.contains(&last)
}

/// Whether modules of PyTorch and widespread code call a buffer so.
pub(super) fn is_buffer(name: &str, is_there: impl Fn(&str) -> bool) -> bool {
    const WHOLE: [&str; 46] = [
        "inv_freq",
        "original_inv_freq",
        "inv_freqs",
        "freqs",
        "freqs_cis",
        "freqs_cos",
        "freqs_sin",
        "cos_cached",
        "sin_cached",
        "cos_cache",
        "sin_cache",
        "cos",
        "sin",
        "rope",
        "slopes",
        "alibi",
        "pe",
        "pos_enc",
        "pos_encoding",
        "positional_encoding",
        "position_ids",
        "token_type_ids",
        "mask",
        "attn_mask",
        "causal_mask",
        "attention_mask",
        "tril",
        "triu",
        "masked_bias",
        "running_mean",
        "running_var",
        "num_batches_tracked",
        "pixel_mean",
        "pixel_std",
        "mean",
        "std",
        "anchors",
        "anchor_grid",
        "relative_position_index",
        "relative_coords_table",
        "window",
        "filt",
        "blur",
        "_u",
        "_v",
        "embed_positions",
    ];
    let (owner, last) = split(name);
    is_spectral(owner, last, is_there) || WHOLE.contains(&last)
}

/// Spectral normalization keeps its vectors under names that weight normalization gives to parameters.
fn is_spectral(owner: &str, last: &str, is_there: impl Fn(&str) -> bool) -> bool {
    ["_u", "_v"].iter().filter_map(|end| last.strip_suffix(end)).any(|stem| {
        let original = format!("{stem}_orig");
        !stem.is_empty() && is_there(&if owner.is_empty() { original } else { format!("{owner}.{original}") })
    })
}

/// The name of the module and the name in it.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_constant_is_or_nothing() {
        let model = ["conv.weight_orig", "conv.weight_u"];
        #[rustfmt::skip]
        let cases = [
            ("fc.weight",             true,  false),
            ("weight",                true,  false),
            ("lstm.weight_ih_l0",     true,  false),
            ("attn.in_proj_bias",     true,  false),
            ("linear.weight_v",       true,  false),
            ("conv.weight_u",         false, true),
            ("conv.weight_orig",      true,  false),
            ("encoder.pos_embed",     true,  false),
            ("rotary.inv_freq",       false, true),
            ("pe",                    false, true),
            ("attn.masked_bias",      false, true),
            ("parametrizations._u",   false, true),
            ("channel_scale",         false, false),
            ("onnx::MatMul_12",       false, false),
        ];
        for (name, parameter, buffer) in cases {
            let is_there = |other: &str| model.contains(&other);
            assert_eq!(is_parameter(name, is_there), parameter, "{name}");
            assert_eq!(is_buffer(name, is_there), buffer, "{name}");
        }
    }
}
