-- Removes every key of a job whose records cannot be used, and leaves a fence as a deletion does.
-- KEYS  1 state of the job, then its other keys
-- ARGV  1 my epoch  2 number of the erasure among my commits  3 seconds for which the fence stays
--       4 epoch and 5 seq that were found in the state; empty what was not there
-- Where something else is found, it was erased before, or belongs to another engine by now: what is there stays.
local found = {}
if redis.call('TYPE', KEYS[1]).ok == 'hash' then found = redis.call('HMGET', KEYS[1], 'epoch', 'seq') end
if (found[1] or '') ~= ARGV[4] or (found[2] or '') ~= ARGV[5] then return 0 end
redis.call('UNLINK', unpack(KEYS))
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'gone', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
