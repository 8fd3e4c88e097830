//! Addresses of things that lie elsewhere: what they are, and how they become files.

/// Whether a path is an address such as `s3://bucket/key`.
pub(crate) fn is_url(path: &str) -> bool {
    let scheme = path.split_once("://").map_or("", |(scheme, _)| scheme);
    let first = scheme.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    first && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
}

/// How to make a file of what lies at an address.
pub(crate) fn how_to_fetch(url: &str) -> &'static str {
    match url.split_once("://").map_or("", |(scheme, _)| scheme).to_ascii_lowercase().as_str() {
        "s3" | "s3a" => {
            "files only are read: `aws s3 cp URL FILE` on every machine, or mount the bucket, and name the path"
        }
        "gs" => {
            "files only are read: `gcloud storage cp URL FILE` on every machine, or mount the bucket, and name the path"
        }
        "http" | "https" | "ftp" => "files only are read: `curl -LO URL` on every machine, and name the path",
        "hdfs" => "files only are read: `hdfs dfs -get URL FILE` on every machine, and name the path",
        "file" => "write the path alone, without file://",
        _ => "files only are read: copy it to the same path on every machine, and name that path",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_paths() {
        #[rustfmt::skip]
        let cases = [
            ("s3://bucket/a.csv", true),  ("https://host/a", true), ("az+blob://x", true), ("file:///a", true),
            ("/data/a.csv", false), ("a://", true), ("://a", false), ("1s://a", false), ("a b://c", false), ("s3:/x", false),
        ];
        for (path, want) in cases {
            assert_eq!(is_url(path), want, "{path}");
        }
    }
}
