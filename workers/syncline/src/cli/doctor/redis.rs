//! The Redis server: whether an engine can use it, and whether it keeps what it is given.

use syncline_engine::store::{RedisAddress, RedisMemory, RedisRisk, RedisStore, StoreError, keys, redacted};
use syncline_rpc::AOF_HINT;

use super::{Exit, Finding};
use crate::cli::Failure;

/// The command floor of the store.
const MIN_REDIS_VERSION: (u32, u32) = (6, 2);

/// Each in a finding of its own; nothing more where it does not let us in.
pub(super) async fn check(url: &str, address: RedisAddress) -> Vec<Finding> {
    let asked = async {
        let store = RedisStore::connect(address).await?;
        match store.query::<String>("info", &["INFO"]).await {
            Ok(info) => Ok((store, vec![version(&info, url), memory(&info), persistence(&info)])),
            // An engine does without it.
            Err(refused @ StoreError::Refused { .. }) => Ok((store, vec![unknown(&refused)])),
            Err(error) => Err(error),
        }
    };
    let (store, mut findings) = match asked.await {
        Ok(found) => found,
        Err(error) => {
            let text = error.to_string();
            return vec![Finding::fail("redis", Exit::Redis, text, Failure::from(error).hint())];
        }
    };
    findings.push(access(&store).await);
    let risks = store.risks().await;
    findings.push(durability(&risks, setting(&store, "appendonly").await.as_deref()));
    findings.push(eviction(&risks, setting(&store, "maxmemory-policy").await.as_deref()));
    findings
}

/// Whether what was acknowledged outlives the server.
fn durability(risks: &[RedisRisk], appendonly: Option<&str>) -> Finding {
    match (risks.iter().find(|risk| matches!(risk, RedisRisk::KeepsNothing)), appendonly) {
        (Some(risk), _) => Finding::warn("appendonly", risk.to_string(), risk.hint()),
        (None, Some("yes")) => Finding::ok("appendonly", "yes"),
        (None, Some(other)) => Finding::warn(
            "appendonly",
            other,
            "what was acknowledged may be lost when Redis stops: `redis-cli CONFIG SET appendonly yes`",
        ),
        (None, None) => {
            Finding::warn("appendonly", "the server does not tell", "see that it keeps its data on disk")
        }
    }
}

/// Whether the server makes room by itself.
fn eviction(risks: &[RedisRisk], policy: Option<&str>) -> Finding {
    match (risks.iter().find(|risk| matches!(risk, RedisRisk::Evicts { .. })), policy) {
        (Some(risk), _) => Finding::warn("eviction", risk.to_string(), risk.hint()),
        (None, Some("noeviction")) => Finding::ok("eviction", "noeviction"),
        (None, Some(other)) => Finding::warn(
            "eviction",
            other,
            "with a memory limit, Redis would throw jobs away: `redis-cli CONFIG SET maxmemory-policy noeviction`",
        ),
        (None, None) => {
            Finding::warn("eviction", "the server does not tell", "see that maxmemory-policy is noeviction")
        }
    }
}

/// The server does not say what it is and how it is.
fn unknown(refused: &StoreError) -> Finding {
    let found = format!("version, memory and saving are not known: {refused}");
    Finding::warn("redis", found, "let its user ask: `redis-cli ACL SETUSER USER +info`")
}

/// Whether this user may do what an engine does: run scripts, write, read and delete keys of ours.
async fn access(store: &RedisStore) -> Finding {
    let key = keys::probe(rand::random());
    let tried = async {
        store.query::<String>("write", &["SET", &key, "doctor", "EX", "60"]).await?;
        let read = store.query::<Option<String>>("read", &["GET", &key]).await?;
        // As the engine does: a user may be allowed the one command and not the other.
        let script = ["SCRIPT", "LOAD", "return redis.call('DEL', KEYS[1])"];
        let sha1 = store.query::<String>("load a script", &script).await?;
        store.query::<i64>("run a script", &["EVALSHA", &sha1, "1", &key]).await?;
        Ok::<_, StoreError>(read)
    };
    match tried.await {
        Ok(Some(_)) => Finding::ok("access", "writes, reads, deletes and runs scripts"),
        Ok(None) => Finding::fail(
            "access",
            Exit::Redis,
            "what was written a moment ago is not there",
            "name the server that takes writes, not a replica of it",
        ),
        Err(error) => Finding::fail("access", Exit::Redis, error.to_string(), access_hint(&error)),
    }
}

fn access_hint(error: &StoreError) -> &'static str {
    match error.is_passing() {
        true if matches!(error, StoreError::AppendOnlyFile { .. }) => AOF_HINT,
        true => "see that it runs and takes writes: memory, disk, and whether it is a replica",
        false => {
            "give its user the keys and commands that docs/operations.md lists: \
             `redis-cli ACL SETUSER USER '~syncline:*' +@all -@dangerous -@admin +info +bgrewriteaof '+config|get'`"
        }
    }
}

/// One field of the answer to INFO.
fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Whether there is room for more.
fn memory(info: &str) -> Finding {
    let Some(memory) = RedisMemory::of_info(info) else {
        return Finding::warn("memory", "the server does not tell", "see that it has room");
    };
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let found = format!("{:.1} MB used", megabytes(memory.used_bytes));
    if memory.limit_bytes == 0 {
        return Finding::ok("memory", format!("{found}, no limit"));
    }
    let found = format!("{found} of {:.1} MB", megabytes(memory.limit_bytes));
    match (memory.is_full(), memory.is_nearly_full()) {
        (true, _) => Finding::fail(
            "memory",
            Exit::Redis,
            format!("{found}: jobs wait until there is room"),
            "`syncline delete JOB` frees what old jobs hold, `syncline cancel JOB` ends others; or give it more: `redis-cli CONFIG SET \
             maxmemory BYTES`",
        ),
        (_, true) => Finding::warn(
            "memory",
            format!("{found}: no new job is taken in"),
            "`syncline delete JOB` frees what old jobs hold; or give it more: `redis-cli CONFIG SET maxmemory BYTES`",
        ),
        _ => Finding::ok("memory", found),
    }
}

/// In the answer to INFO: also of the last flush.
const AOF_STATUS: &str = "aof_last_write_status";

/// Whether the server gets its data onto the disk; after a failure it refuses writes.
fn persistence(info: &str) -> Finding {
    let failed = [AOF_STATUS, "rdb_last_bgsave_status", "aof_last_bgrewrite_status"]
        .into_iter()
        .filter(|name| info_field(info, name).is_some_and(|status| status != "ok"));
    let failed: Vec<&str> = failed.collect();
    match failed.is_empty() {
        true => Finding::ok("saving", "ok"),
        false => Finding::fail(
            "saving",
            Exit::Redis,
            format!("failed: {}", failed.join(", ")),
            match failed.contains(&AOF_STATUS) {
                true => AOF_HINT,
                false => "its disk is full, or it may not write there: see its log",
            },
        ),
    }
}

fn version(info: &str, url: &str) -> Finding {
    let field = |name: &str| info_field(info, name);
    let number = field("redis_version").unwrap_or("?");
    let name = field("valkey_version").map_or(String::new(), |v| format!(" (Valkey {v})"));
    let found = format!("{number}{name} at {}", redacted(url));
    let mut parts = number.split('.').map(|p| p.parse().unwrap_or(0));
    match (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= MIN_REDIS_VERSION {
        true => Finding::ok("redis", found),
        false => Finding::fail("redis", Exit::Redis, found, "version 6.2 or newer is needed"),
    }
}

/// A setting of the server; managed servers often refuse to answer.
async fn setting(store: &RedisStore, name: &str) -> Option<String> {
    let pair: Vec<String> = store.query("read setting", &["CONFIG", "GET", name]).await.ok()?;
    pair.into_iter().nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::Verdict;

    #[test]
    fn versions_table() {
        #[rustfmt::skip]
        let cases = [
            ("redis_version:7.2.4\r\nvalkey_version:9.1.2\r\n", Verdict::Ok,   "7.2.4 (Valkey 9.1.2)"),
            ("redis_version:6.2.0\r\n",                         Verdict::Ok,   "6.2.0 at"),
            ("redis_version:6.0.16\r\n",                        Verdict::Fail, "6.0.16 at"),
            ("",                                                Verdict::Fail, "? at"),
        ];
        for (info, verdict, found) in cases {
            let finding = version(info, "redis://127.0.0.1:1/");
            assert_eq!(finding.verdict, verdict, "{info}");
            assert!(finding.found.starts_with(found), "{}", finding.found);
        }
    }

    #[test]
    fn whoever_lacks_rights_is_told_which_and_a_full_server_is_another_matter() {
        let refused = |passing: bool| {
            let (op, cause) = ("write", "NOPERM".to_owned());
            access_hint(&match passing {
                true => StoreError::Unavailable { op, cause },
                false => StoreError::Refused { op, cause },
            })
        };
        assert!(refused(false).contains("ACL SETUSER") && refused(true).contains("takes writes"));
    }

    #[test]
    fn health_table() {
        #[rustfmt::skip]
        let cases = [
            ("used_memory:1000000\r\nmaxmemory:0\r\n",        Verdict::Ok,   Verdict::Ok),
            ("used_memory:500\r\nmaxmemory:1000\r\n",         Verdict::Ok,   Verdict::Ok),
            ("used_memory:950\r\nmaxmemory:1000\r\n",         Verdict::Warn, Verdict::Ok),
            ("used_memory:1000\r\nmaxmemory:1000\r\n",        Verdict::Warn, Verdict::Ok),
            ("used_memory:1001\r\nmaxmemory:1000\r\n",        Verdict::Fail, Verdict::Ok),
            ("aof_last_write_status:ok\r\n",                   Verdict::Warn, Verdict::Ok),
            ("aof_last_write_status:err\r\n",                  Verdict::Warn, Verdict::Fail),
            ("rdb_last_bgsave_status:err\r\nused_memory:1\r\n", Verdict::Warn, Verdict::Fail),
        ];
        for (info, room, disk) in cases {
            assert_eq!((memory(info).verdict, persistence(info).verdict), (room, disk), "{info}");
            let has_remedy = persistence(info).hint.contains("BGREWRITEAOF");
            assert_eq!(has_remedy, info.contains("aof_last_write_status:err"), "{info}");
        }
    }
}
