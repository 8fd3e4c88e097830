//! A Redis server that failed to write its append-only file, and what helps.

/// How Redis and Valkey begin to say so; the cause follows.
const AOF_FAILURE: &str = "Errors writing to the AOF file";

/// What the user can do about it.
pub const AOF_HINT: &str = "see to the disk of the Redis server; after one flush of its append-only file that failed (fsync) it refuses all writes although \
     the disk is well again, until the file is written anew: `redis-cli BGREWRITEAOF`, or start the server again. The engine sends that command once \
     a minute, where its Redis user may (`+bgrewriteaof`)";

/// Whether Redis refuses writes for that reason, by what it said.
pub fn is_aof_failure(said: &str) -> bool {
    said.contains(AOF_FAILURE)
}
