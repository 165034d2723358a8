-- The job database in Redis. Every call of this script is one atomic change.
-- KEYS[1] is the prefix of every key, ARGV[1] the command. Lists are passed as JSON.
--
-- job:<id>                 hash    a job; absent fields are None
-- version, era             string  the newest version, and the one before the first of this database
-- changes                  zset    id -> version of its last change
-- created, waiting, ended  zset    id -> time: of all jobs, of queued ones, of ended ones
-- running                  zset    id -> last heartbeat
-- runs                     hash    run -> id, of running jobs
-- cancelled, cancelled_workers  zset, hash  "id:run" -> time of cancelling, worker: runs that are cancelled and not released yet
-- ends                     hash    terminal status -> number of jobs
-- active, turns, state     set, hash, hash    owners with queued jobs; owner -> turn; the turn being served, and which job is passed over
-- queue:<owner>            zset    id -> rank, of queued jobs
-- alike:<recipe>:<tokens>  zset    id -> rank, of queued jobs that may share a forward pass
-- owners:<id>, mine:<owner>, readers   set, zset, set    grants, both ways, and every owner who has any
-- chunks:<id>              set     chunks of a study that has not ended
-- shares, keys             hash    share key -> "id:owner", and back
-- seen, workers            zset, hash    worker -> time of its last heartbeat, its state

local call, prefix = redis.call, KEYS[1]
local clock = call('TIME')
local now = clock[1] + clock[2] / 1e6
local commands = {}

local function k(...) return prefix .. table.concat({...}, ':') end
local function get(id, ...) return call('HMGET', k('job', id), ...) end
local function is_active(status) return status == 'queued' or status == 'running' end

-- Encode a list of strings as JSON; cjson encodes an empty table as an object.
local function json(list) return #list == 0 and '[]' or cjson.encode(list) end

local function jobs(ids)
  local found = {}
  for _, id in ipairs(ids) do
    local flat, job = call('HGETALL', k('job', id)), {}
    for i = 1, #flat, 2 do job[flat[i]] = flat[i + 1] end
    if #flat > 0 then found[#found + 1] = job end
  end
  return json(found)
end

-- Assign the next version to a changed job. After the loss of all data, versions continue beyond all earlier ones.
local step
function step(id)
  if call('EXISTS', k('version')) == 0 then
    local era = clock[1] * 1000 + math.floor(clock[2] / 1000)
    call('SET', k('version'), era)
    call('SET', k('era'), era)
  end
  local version = call('INCR', k('version'))
  call('ZADD', k('changes'), version, id)
  local kind, batch = unpack(get(id, 'kind', 'batch'))
  if kind == 'chunk' and call('EXISTS', k('job', batch)) == 1 then call('HSET', k('job', batch), 'version', step(batch)) end
  return version
end

local function set(id, ...) call('HSET', k('job', id), 'version', step(id), ...) end

local function served() return tonumber(call('HGET', k('state'), 'turn') or 0) end

-- Add a job to the queue. An owner with an empty queue joins in the round being served.
local function push(id)
  local owner, priority, number, created, recipe, tokens, attempts =
    unpack(get(id, 'owner', 'priority', 'number', 'created', 'recipe', 'tokens', 'attempts'))
  if call('SADD', k('active'), owner) == 1 then
    call('HSET', k('turns'), owner, math.max(served(), tonumber(call('HGET', k('turns'), owner) or 0)))
  end
  local rank = priority * 1e14 + number
  call('ZADD', k('queue', owner), rank, id)
  call('ZADD', k('waiting'), created, id)
  if recipe ~= '' and tokens and attempts == '0' then call('ZADD', k('alike', recipe, tokens), rank, id) end
end

local function dequeue(id)
  local owner, recipe, tokens = unpack(get(id, 'owner', 'recipe', 'tokens'))
  call('ZREM', k('queue', owner), id)
  if call('EXISTS', k('queue', owner)) == 0 then call('SREM', k('active'), owner) end
  call('ZREM', k('waiting'), id)
  if tokens then call('ZREM', k('alike', recipe, tokens), id) end
end

local function drop(id, status)
  call('HINCRBY', k('ends'), status, -1)
  for _, index in ipairs({'created', 'ended', 'changes'}) do call('ZREM', k(index), id) end
  call('DEL', k('job', id))
end

local function grant(id, owner, time)
  call('SADD', k('owners', id), owner)
  call('SADD', k('readers'), owner)
  call('ZADD', k('mine', owner), time, id)
end

local function withdraw(id, owner)
  local key = call('HGET', k('keys'), id .. ':' .. owner)
  if key then
    call('HDEL', k('keys'), id .. ':' .. owner)
    call('HDEL', k('shares'), key)
  end
  call('SREM', k('owners', id), owner)
  return call('ZREM', k('mine', owner), id)
end

-- Release a run; return whether it was the current one of its job.
local function release(id, run)
  call('ZREM', k('cancelled'), id .. ':' .. run)
  call('HDEL', k('cancelled_workers'), id .. ':' .. run)
  if call('HGET', k('runs'), run) ~= id then return false end
  call('HDEL', k('runs'), run)
  call('ZREM', k('running'), id)
  return true
end

local finish

-- Cancel a queued or running job; its worker, if it has one, has yet to release it.
local function cancel(id)
  local status, run, worker = unpack(get(id, 'status', 'run', 'worker'))
  if status == 'queued' then
    dequeue(id)
  else
    release(id, run)
    call('ZADD', k('cancelled'), now, id .. ':' .. run)
    call('HSET', k('cancelled_workers'), id .. ':' .. run, worker)
  end
  finish(id, 'cancelled')
end

-- End a job, and cancel and remove its chunks.
function finish(id, status)
  call('ZADD', k('ended'), now, id)
  call('HINCRBY', k('ends'), status, 1)
  set(id, 'status', status, 'stage', status, 'finished', now)
  for _, chunk in ipairs(call('SMEMBERS', k('chunks', id))) do
    if is_active(get(chunk, 'status')[1]) then cancel(chunk) end
    local ended = get(chunk, 'status')[1]
    if ended then drop(chunk, ended) end
  end
  call('DEL', k('chunks', id))
end

local function record_heartbeat(name, worker)
  call('ZADD', k('seen'), now, name)
  call('HSET', k('workers'), name, worker)
end

function commands.enqueue(list, batch, priority, total, each)
  local work, fresh, number, by_owner = cjson.decode(list), {}, 0, {}
  for _, one in ipairs(work) do
    if not fresh[one.id] and not is_active(get(one.id, 'status')[1]) then
      fresh[one.id], number = one, number + 1
      by_owner[one.owner] = (by_owner[one.owner] or 0) + 1
    end
  end
  if number > 0 and total ~= '' and call('ZCARD', k('waiting')) + number > tonumber(total) then return 'total' end
  for owner, more in pairs(by_owner) do
    if each ~= '' and call('ZCARD', k('queue', owner)) + more > tonumber(each) then return 'owner' end
  end
  for i, one in ipairs(work) do
    if fresh[one.id] == one then
      local status, created = get(one.id, 'status')[1], now + i * 1e-6
      if status then drop(one.id, status) end
      local version = step(one.id)
      local job = {'version', version, 'number', version, 'created', created, 'priority', priority, 'status', 'queued', 'stage', 'queued',
        'detail', '', 'fraction', 0, 'attempts', 0, 'run', 0, 'worker', ''}
      for name, value in pairs(one) do job[#job + 1], job[#job + 2] = name, value end
      if batch ~= '' then job[#job + 1], job[#job + 2] = 'batch', batch end
      call('HSET', k('job', one.id), unpack(job))
      if one.kind == 'chunk' then
        call('SADD', k('chunks', batch), one.id)
      else
        call('ZADD', k('created'), created, one.id)
      end
      for _, owner in ipairs(call('SMEMBERS', k('owners', one.id))) do grant(one.id, owner, created) end
      push(one.id)
    end
    if one.kind ~= 'chunk' then grant(one.id, one.owner, get(one.id, 'created')[1]) end
  end
  return ''
end

function commands.grant(id, owner) grant(id, owner, get(id, 'created')[1] or now) end

function commands.get_many(ids) return jobs(cjson.decode(ids)) end

-- Return the head of the queue: the turn and the first jobs of each owner, at most `window` in all and `deepest` per owner.
function commands.front(window, deepest)
  local owners, queues = call('SMEMBERS', k('active')), {}
  local depth = math.max(math.min(math.floor(window / math.max(#owners, 1)), deepest), 1)
  for _, owner in ipairs(owners) do
    local queue = {}
    for _, id in ipairs(call('ZRANGE', k('queue', owner), 0, depth - 1)) do
      queue[#queue + 1] = {id, unpack(get(id, 'priority', 'number', 'model', 'recipe', 'tokens', 'attempts'))}
    end
    queues[#queues + 1] = {owner, call('HGET', k('turns'), owner), queue}
  end
  local passed = call('HMGET', k('state'), 'passed', 'since')
  return cjson.encode({passed[1], passed[2] and now - passed[2] or 0, queues})
end

local function take(id, worker)
  dequeue(id)
  local version, owner = step(id), get(id, 'owner')[1]
  call('HINCRBY', k('job', id), 'attempts', 1)
  call('HINCRBY', k('turns'), owner, 1)
  call('HSET', k('job', id), 'version', version, 'run', version, 'worker', worker, 'status', 'running', 'stage', 'loading', 'started', now)
  call('ZADD', k('running'), now, id)
  call('HSET', k('runs'), version, id)
end

-- Claim the first of the choices, [id, number of companions], that is still queued.
function commands.take(name, worker, head, turn, choices)
  for _, choice in ipairs(cjson.decode(choices)) do
    local id, more = unpack(choice)
    local status, recipe, tokens = unpack(get(id, 'status', 'recipe', 'tokens'))
    if status == 'queued' then
      call('HSET', k('state'), 'turn', math.max(served(), turn))
      if id ~= head and call('HGET', k('state'), 'passed') ~= head then call('HSET', k('state'), 'passed', head, 'since', now) end
      local ids = {id}
      for _, other in ipairs(more > 0 and call('ZRANGE', k('alike', recipe, tokens), 0, more) or {}) do
        if other ~= id and #ids <= more then ids[#ids + 1] = other end
      end
      for _, each in ipairs(ids) do take(each, name) end
      record_heartbeat(name, worker)
      return jobs(ids)
    end
  end
  return '[]'
end

function commands.heartbeat(name, worker, runs)
  record_heartbeat(name, worker)
  for _, run in ipairs(cjson.decode(runs)) do
    local id = call('HGET', k('runs'), run)
    if id and get(id, 'worker')[1] == name then call('ZADD', k('running'), now, id) end
  end
end

function commands.deregister(name)
  call('ZREM', k('seen'), name)
  call('HDEL', k('workers'), name)
  local cancelled = call('HGETALL', k('cancelled_workers'))
  for i = 1, #cancelled, 2 do
    if cancelled[i + 1] == name then release(string.match(cancelled[i], '(.*):(.*)')) end
  end
end

function commands.progress(id, run, fraction, stage, detail)
  if call('HGET', k('runs'), run) ~= id then return 0 end
  set(id, 'fraction', fraction, 'stage', stage, 'detail', detail)
  return 1
end

function commands.finish(id, run, status, problem)
  if not release(id, run) then return 0 end
  finish(id, status)
  if status == 'done' then call('HSET', k('job', id), 'fraction', 1) end
  if problem ~= '' then call('HSET', k('job', id), 'error', problem) end
  return 1
end

function commands.requeue(id, run, detail, uncounted)
  if not release(id, run) then return 0 end
  call('HINCRBY', k('job', id), 'attempts', 0 - uncounted)
  set(id, 'status', 'queued', 'stage', 'queued', 'fraction', 0, 'detail', detail)
  push(id)
  return 1
end

-- Return another owner with a grant of the job, the first by name; nil if there is none.
local function heir(id, owner)
  local others = call('SMEMBERS', k('owners', id))
  table.sort(others)
  for _, other in ipairs(others) do
    if other ~= owner then return other end
  end
end

-- Transfer a job whose owner withdrew to another owner with a grant, at the other owner's turn.
local function transfer(id, owner, other)
  local status, first = unpack(get(id, 'status', 'owner'))
  if first ~= owner then return end
  if status == 'queued' then dequeue(id) end
  call('HSET', k('job', id), 'owner', other)
  if status == 'queued' then push(id) end
end

-- The owner '' means all owners.
function commands.cancel(id, owner)
  local status = get(id, 'status')[1]
  if not is_active(status) or (owner ~= '' and not call('ZSCORE', k('mine', owner), id)) then return 0 end
  local other = owner ~= '' and heir(id, owner)
  if other then
    withdraw(id, owner)
    transfer(id, owner, other)
    return 1
  end
  cancel(id)
  return 1
end

function commands.forget(id, owner)
  local status, gone = get(id, 'status')[1], 0
  if is_active(status) then return 0 end
  for _, each in ipairs(owner ~= '' and {owner} or call('SMEMBERS', k('owners', id))) do gone = gone + withdraw(id, each) end
  if owner ~= '' and gone == 0 then return 0 end
  local other = heir(id, owner)
  if other then
    transfer(id, owner, other)
    return 0
  end
  if status then drop(id, status) end
  return (gone > 0 or status) and 1 or 0
end

function commands.expired(seconds, name)
  local ids = {}
  for _, id in ipairs(call('ZRANGEBYSCORE', k('running'), '-inf', seconds == '' and '+inf' or string.format('(%.6f', now - seconds))) do
    if name == '' or get(id, 'worker')[1] == name then ids[#ids + 1] = id end
  end
  return jobs(ids)
end

function commands.unreleased(seconds, gone)
  local runs = {}
  for _, member in ipairs(call('ZRANGEBYSCORE', k('cancelled'), '-inf', string.format('(%.6f', now - seconds))) do
    local worker = call('HGET', k('cancelled_workers'), member)
    local seen = call('ZSCORE', k('seen'), worker)
    if seen and tonumber(seen) > now - gone then
      local id, run = string.match(member, '(.*):(.*)')
      runs[#runs + 1] = {id, run, worker}
    end
  end
  return json(runs)
end

function commands.waiting(owner) return call('ZCARD', owner == '' and k('waiting') or k('queue', owner)) end

function commands.oldest() return call('ZRANGE', k('waiting'), 0, 0, 'WITHSCORES')[2] end

-- Other owners' jobs are taken first in the rounds before its turn, and in its own round if they rank before it.
function commands.position(id)
  local owner = get(id, 'owner')[1]
  local before = owner and call('ZRANK', k('queue', owner), id)
  if not before then return nil end
  local turn, rank = call('HGET', k('turns'), owner) + before, tonumber(call('ZSCORE', k('queue', owner), id))
  for _, other in ipairs(call('SMEMBERS', k('active'))) do
    local rounds = turn - call('HGET', k('turns'), other)
    if other ~= owner and rounds >= 0 then
      before = before + math.min(rounds, call('ZCARD', k('queue', other)))
      local tied = call('ZRANGE', k('queue', other), rounds, rounds, 'WITHSCORES')
      if tied[2] and tonumber(tied[2]) < rank then before = before + 1 end
    end
  end
  return before
end

function commands.newest_version() return call('GET', k('version')) end

function commands.changed_since(version)
  local newest, era = call('GET', k('version')), call('GET', k('era'))
  if not newest or tonumber(version) < tonumber(era) then return cjson.encode({newest or '0', false}) end
  local ids = call('ZRANGEBYSCORE', k('changes'), '(' .. version, '+inf')
  return '["' .. newest .. '",' .. json(ids) .. ']'
end

function commands.statuses()
  local counts = call('HGETALL', k('ends'))
  for _, pair in ipairs({{'queued', 'waiting'}, {'running', 'running'}}) do
    counts[#counts + 1], counts[#counts + 2] = pair[1], tostring(call('ZCARD', k(pair[2])))
  end
  return json(counts)
end

function commands.page(limit, before, owner, kind)
  local index, found, offset = owner == '' and k('created') or k('mine', owner), {}, 0
  repeat
    local ids = call('ZREVRANGEBYSCORE', index, '(' .. before, '-inf', 'LIMIT', offset, limit)
    offset = offset + #ids
    for _, id in ipairs(ids) do
      local version, is = unpack(get(id, 'version', 'kind'))
      if #found < tonumber(limit) and version and (is or 'analysis') == kind then found[#found + 1] = id end
    end
  until #ids == 0 or #found == tonumber(limit)
  return jobs(found)
end

function commands.chunks(id, ...)
  local chunks = {}
  for _, chunk in ipairs(call('SMEMBERS', k('chunks', id))) do
    local values = get(chunk, ...)
    if values[1] then chunks[#chunks + 1] = {chunk, unpack(values)} end
  end
  return json(chunks)
end

function commands.workers(gone)
  local held, states = {}, {}
  local function holds(worker, id) held[worker] = held[worker] or {}; table.insert(held[worker], id) end
  for _, id in ipairs(call('ZRANGE', k('running'), 0, -1)) do holds(get(id, 'worker')[1], id) end
  local cancelled = call('HGETALL', k('cancelled_workers'))
  for i = 1, #cancelled, 2 do holds(cancelled[i + 1], (string.match(cancelled[i], '(.*):'))) end
  local seen = call('ZRANGEBYSCORE', k('seen'), string.format('(%.6f', now - gone), '+inf', 'WITHSCORES')
  for i = 1, #seen, 2 do
    states[#states + 1] = {call('HGET', k('workers'), seen[i]), seen[i + 1], held[seen[i]] or {}}
  end
  return json(states)
end

function commands.may_read(id, owner) return call('SISMEMBER', k('owners', id), owner) end

function commands.share(id, owner, key)
  local pair = id .. ':' .. owner
  if call('HSETNX', k('keys'), pair, key) == 1 then call('HSET', k('shares'), key, pair) end
  return call('HGET', k('keys'), pair)
end

function commands.unshare(id, owner)
  local key = call('HGET', k('keys'), id .. ':' .. owner)
  if not key then return 0 end
  call('HDEL', k('shares'), key)
  return call('HDEL', k('keys'), id .. ':' .. owner)
end

function commands.shared(key)
  local pair = call('HGET', k('shares'), key)
  return pair and string.match(pair, '^(.-):')
end

function commands.trim(older_than, most, limit)
  local dropped, too_many = 0, call('ZCARD', k('ended')) - most
  local ended = call('ZRANGE', k('ended'), 0, limit - 1, 'WITHSCORES')
  for i = 1, #ended, 2 do
    if dropped < too_many or tonumber(ended[i + 1]) < now - older_than then
      drop(ended[i], get(ended[i], 'status')[1])
      dropped = dropped + 1
    end
  end
  for _, owner in ipairs(call('SMEMBERS', k('readers'))) do
    local more = math.min(call('ZCARD', k('mine', owner)) - most, limit)
    for _, id in ipairs(more > 0 and call('ZRANGE', k('mine', owner), 0, more - 1) or {}) do withdraw(id, owner) end
  end
  for _, name in ipairs(call('ZRANGEBYSCORE', k('seen'), '-inf', now - older_than)) do commands.deregister(name) end
  return dropped
end

function commands.now() return string.format('%.6f', now) end

return commands[ARGV[1]](unpack(ARGV, 2))
