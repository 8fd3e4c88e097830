//! How full the memory of the Redis server is: beyond its limit it takes no writes but those that free
//! memory.

use super::redis_info::info_number;

/// Share of the limit above which there is no room for another job: what was taken in has to end in the rest.
const NEARLY_FULL_PERCENT: u128 = 90;

/// Memory of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedisMemory {
    /// What counts toward the limit, in bytes.
    pub used_bytes: u64,
    /// The setting `maxmemory`, in bytes; 0: there is no limit.
    pub limit_bytes: u64,
}

impl RedisMemory {
    /// Reads the answer to `INFO memory`; `None` where it does not tell.
    pub fn of_info(info: &str) -> Option<Self> {
        let (used, limit_bytes) = (info_number(info, "used_memory")?, info_number(info, "maxmemory")?);
        // Buffers of replicas and of the file that is written.
        let not_counted = info_number(info, "mem_not_counted_for_evict").unwrap_or(0);
        Some(Self { used_bytes: used.saturating_sub(not_counted), limit_bytes })
    }

    /// Whether there is no room for another job.
    pub fn is_nearly_full(self) -> bool {
        let (used, limit) = (u128::from(self.used_bytes), u128::from(self.limit_bytes));
        limit > 0 && used * 100 > limit * NEARLY_FULL_PERCENT
    }

    /// Whether writes are refused.
    pub fn is_full(self) -> bool {
        self.limit_bytes > 0 && self.used_bytes > self.limit_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_toward_the_limit_is_compared_with_it() {
        #[rustfmt::skip]
        let cases = [
            ("used_memory:5000\r\nmaxmemory:0\r\n",                                     Some((false, false))),
            ("used_memory:900\r\nmaxmemory:1000\r\n",                                   Some((false, false))),
            ("used_memory:901\r\nmaxmemory:1000\r\n",                                   Some((true,  false))),
            ("used_memory:1000\r\nmaxmemory:1000\r\n",                                  Some((true,  false))),
            ("used_memory:1001\r\nmaxmemory:1000\r\n",                                  Some((true,  true))),
            ("used_memory:1001\r\nmaxmemory:1000\r\nmem_not_counted_for_evict:101\r\n", Some((false, false))),
            ("used_memory:1001\r\n",                                                    None),
            ("",                                                                        None),
        ];
        for (info, want) in cases {
            let found = RedisMemory::of_info(info).map(|memory| (memory.is_nearly_full(), memory.is_full()));
            assert_eq!(found, want, "{info}");
        }
    }
}
