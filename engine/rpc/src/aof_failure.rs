//! A Redis server that failed to write its append-only file, and what helps.

/// How Redis and Valkey begin to say so; the cause follows.
const AOF_FAILURE: &str = "Errors writing to the AOF file";

/// What the user can do about it.
pub const AOF_HINT: &str = "see to the disk of the Redis server; after one flush of its append-only file that failed (fsync) it refuses all writes although \
     the disk is well again, until the file is written anew: `redis-cli BGREWRITEAOF`, or start the server again. The engine sends that command once \
     a minute, where its Redis user may (`+bgrewriteaof`), and every ten minutes while the disk is full";

/// How operating systems say that there is no room: no space on the disk, or none that its user may take.
const NO_ROOM: [&str; 2] = ["No space left on device", "uota exceeded"];

/// Whether Redis refuses writes for that reason, by what it said.
pub fn is_aof_failure(said: &str) -> bool {
    said.contains(AOF_FAILURE)
}

/// Whether it refuses them because the disk is full: after a write that found no room it takes them again by
/// itself once there is some, after a flush (fsync) it does not.
pub fn is_of_full_disk(said: &str) -> bool {
    is_aof_failure(said) && NO_ROOM.iter().any(|words| said.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_by_the_words_of_the_system() {
        #[rustfmt::skip]
        let cases = [
            ("MISCONF Errors writing to the AOF file: No space left on device", true),
            ("MISCONF Errors writing to the AOF file: Disk quota exceeded",     true),
            // musl
            ("MISCONF Errors writing to the AOF file: Quota exceeded",          true),
            ("MISCONF Errors writing to the AOF file: Input/output error",      false),
            ("No space left on device",                                         false),
        ];
        for (said, want) in cases {
            assert_eq!(is_of_full_disk(said), want, "{said}");
        }
    }
}
