//! What `INFO` of a Redis server says.

/// The text of `field`, by its whole name.
pub(super) fn info_text<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim)
}

/// The number of `field`, by its whole name.
pub(super) fn info_number(info: &str, field: &str) -> Option<u64> {
    info_text(info, field)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_what_info_says_is_found_by_its_whole_name() {
        let info = "# Cluster\r\ncluster_enabled:1\r\nevicted_keys_of:3\r\nevicted_keys:12\r\n";
        assert_eq!(
            (info_number(info, "cluster_enabled"), info_number(info, "evicted_keys")),
            (Some(1), Some(12))
        );
        assert_eq!((info_number(info, "cluster"), info_number("", "evicted_keys")), (None, None));
    }
}
