-- Makes a job belong to a newer engine: from now on commits of lower epochs are refused.
-- KEYS  1 state   ARGV  1 epoch
-- Returns seq, or -1 if a higher epoch owns it, or -2 if there is no such job.
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'seq')
if not stored[1] then return -2 end
if tonumber(stored[1]) > tonumber(ARGV[1]) then return -1 end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
return tonumber(stored[2])
