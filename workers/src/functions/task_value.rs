//! What a task gives, as it travels.

use syncline_ps::PsError;
use syncline_scheduler::tasks::{BlobValue, Bytes, MAX_INLINE_BYTES, TaskIndex, Value};

use super::large_value::Salt;

/// The salt of what one attempt at a task gives.
pub(crate) fn task_salt(nonce: u32, task: TaskIndex, attempt: u16) -> Salt {
    let mut salt = Salt::default();
    salt[..4].copy_from_slice(&nonce.to_le_bytes());
    salt[4..8].copy_from_slice(&task.0.to_le_bytes());
    salt[8..10].copy_from_slice(&attempt.to_le_bytes());
    salt
}

/// The value as it travels; a large one is stored with `put`.
pub(crate) fn to_value(
    salt: Salt,
    value: Bytes,
    put: impl FnOnce(Salt, &[u8]) -> Result<BlobValue, PsError>,
) -> Result<Value, PsError> {
    match value.len() <= MAX_INLINE_BYTES {
        true => Ok(Value::Inline(value)),
        false => put(salt, &value).map(Value::Blob),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_salt_belongs_to_one_attempt() {
        let salt = task_salt(0x0403_0201, TaskIndex(0x0807_0605), 0x0a09);
        assert_eq!(salt, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 0, 0, 0, 0]);
    }
}
