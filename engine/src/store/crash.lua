-- Notes that an engine ends with a bug while it handles a job.
-- KEYS  1 state of the job   ARGV  1 epoch  2 now in ms  3 how long after one another crashes count together, in ms  4 the panic
-- Returns how many there were, one after the other; 0 if the job belongs to another engine, or was never stored.
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then return 0 end
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'crashes', 'crashed_ms', 'seq')
if stored[1] ~= ARGV[1] or not stored[4] then return 0 end
local before = tonumber(stored[2] or '') or 0
local at_ms = tonumber(stored[3] or '') or 0
if tonumber(ARGV[2]) - at_ms > tonumber(ARGV[3]) then before = 0 end
-- A first write that takes no memory: at its limit Redis refuses no later one of this script.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'crashes', before + 1, 'crashed_ms', ARGV[2], 'crash', ARGV[4])
return before + 1
