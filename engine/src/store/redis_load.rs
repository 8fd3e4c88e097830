//! How far a Redis server is that was started and still reads its files.

use super::{error::StoreError, redis_info::info_number, redis_store::RedisStore};

/// What it has read of them, as it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedisLoad {
    /// Grows until everything is read.
    pub loaded_bytes: u64,
    /// Of all files; what it reads may turn out to be more.
    pub total_bytes: u64,
}

impl RedisLoad {
    fn of_info(info: &str) -> Option<Self> {
        let loads = info_number(info, "loading")? > 0;
        let (loaded_bytes, total_bytes) =
            (info_number(info, "loading_loaded_bytes")?, info_number(info, "loading_total_bytes")?);
        loads.then_some(Self { loaded_bytes, total_bytes })
    }
}

impl RedisStore {
    /// `None` where the server does not load, or does not tell. It answers this while it loads, too.
    pub async fn own_load(&self) -> Result<Option<RedisLoad>, StoreError> {
        let info: String = self.query("info", &["INFO", "persistence"]).await?;
        Ok(RedisLoad::of_info(&info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_server_is_that_loads_is_read_from_what_it_says() {
        let loads = "# Persistence\r\nloading:1\r\nasync_loading:0\r\nloading_start_time:1\r\nloading_total_bytes:900\r\n\
                     loading_loaded_bytes:400\r\nloading_loaded_perc:44.44\r\n";
        assert_eq!(RedisLoad::of_info(loads), Some(RedisLoad { loaded_bytes: 400, total_bytes: 900 }));
        assert_eq!(RedisLoad::of_info(&loads.replace("loading:1", "loading:0")), None);
        assert_eq!(RedisLoad::of_info("# Persistence\r\nloading:1\r\n"), None, "it does not say how far");
        assert_eq!(RedisLoad::of_info(""), None);
    }
}
