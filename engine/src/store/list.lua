-- Puts jobs on the list, or takes one off, if this engine still has the lead.
-- KEYS  1 engine  2 jobs   ARGV  1 my epoch  then 'add', time of submission in ms, job; or 'remove', job;
--       or 'again', then time and job of each that is to be listed unless it is
-- A list of another type is nobody's work, and no engine could load the jobs: it is begun anew.
-- Returns 1, or 0 if another engine has the lead.
if tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0') > tonumber(ARGV[1]) then return 0 end
local found = redis.call('TYPE', KEYS[2]).ok
if found ~= 'zset' and found ~= 'none' then redis.call('UNLINK', KEYS[2]) end
-- A first write that takes no memory: at its limit Redis refuses no later one of this script.
redis.call('ZREM', KEYS[2], '')
if ARGV[2] == 'remove' then
  redis.call('ZREM', KEYS[2], ARGV[3])
elseif ARGV[2] == 'add' then
  redis.call('ZADD', KEYS[2], ARGV[3], ARGV[4])
else
  for i = 3, #ARGV, 2 do redis.call('ZADD', KEYS[2], 'NX', ARGV[i], ARGV[i + 1]) end
end
return 1
