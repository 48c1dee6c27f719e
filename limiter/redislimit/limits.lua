-- Decides takes of rate limits, all the takes of a group or none. The steps are those of package limiter, in microseconds:
-- change one and the differential test tells. Only commands of Redis 6.2.
--
-- KEYS     one for each take, in order
-- ARGV[1]  of a single take of a token bucket by the server's clock "<I4I4" n, how often to take n; then its rule: 23 bytes.
--          All else is longer: the groups: "<BBHd" flags (1: the clock is the caller's, 2: refund, 4: book none), takes in the group, runs, and
--          the caller's clock; then for each take "<BI4I4dB": its rule, n, how often to take n (only alone in a group), the
--          longest delay, flags (1: shadow). So many runs are groups of one take each, told once, of keys that differ. A refund
--          is a group of one take: its tag, n, 0, the instant of the booking, 0
-- ARGV[2…] the rules: tag and terms as they are stored; behind those of a calendar window four edges "<dddd" and its text
--
-- Returns "<d" the server's clock (0 if clocks are the callers'), then for each group "<B" its verdict (0 refused, 1 booked, 2 a key holds something else,
-- 3 the clock is outside of the edges) and for each take "<I4H" how often it was booked and the length of what follows: the
-- state before, from which the caller computes all the numbers. A log is abridged to entries that give the same numbers.
-- Where the edges do not hold the instant "<d" of the key, that follows instead.
--
-- State    tag and terms, then
--   token bucket, leaky bucket  A1, A2 "<BI4I6I4" rate, period, burst    "<ddI4I6"  at, shift, units, fraction over period
--   fixed window                A3 "<BI4I6" rate, period (0: calendar)   "<ddI4dd"  at, shift, count, start, end; then a text
--   sliding window              A4 "<BI4I6B" rate, period, cells         "<dd"      at, shift; then counts "<I4", newest first
--   sliding log                 A5 "<BI4I6" rate, period                 "<ddI4I4"  at, shift, entries that are over, units in
--                               them; then entries "<dI4": instant, and units up to and with it, both sums modulo 2^32
--
-- Numbers are doubles: exact below 2^53. % is exact there too.

-- The call of a single take -----------------------------------------------------------------------------------------

-- The short way is for token buckets under the same terms, whose clocks ran as clocks do. It stands here thrice: for a call of a
-- single take, before anything is made that it does not need, and at the end for takes among others and for groups. A call of
-- a function for each would cost a tenth.

local args = ARGV[1]
local plain, plainNow = #args == 23, 0
if plain then
  local unpack, pack, call = struct.unpack, struct.pack, redis.call
  local n, times, tag, rate, period, burst = unpack('<I4I4BI4I6I4', args)
  local key, t = KEYS[1], call('TIME')
  local now, s = t[1] * 1000000 + t[2], redis.pcall('GET', key) or ''
  local whole, frac
  if s == '' then
    whole, frac = burst, 0
  elseif #s == 41 then
    local t, r, p, b, at, shift, units, part = unpack('<BI4I6I4ddI4I6', s)
    local v = (now - at) * rate + part
    if t == tag and r == rate and p == period and b == burst and shift == 0 and at % 1 == 0 and part < period and
      (units < burst or units == burst and part == 0) and v >= part and v < 4503599627370496 then
      frac = v % period
      whole = units + (v - frac) / period
      if whole >= burst then whole, frac = burst, 0 end
    end
  end
  if whole and n <= whole then
    local booked = times == 1 and 1 or math.min(times, math.floor(whole / n))
    whole = whole - n * booked
    local ttl = math.ceil(((burst - whole) * period - frac) / rate / 1000) + 1
    -- A number as it is Redis writes with 17 digits, which takes longer.
    ttl = string.format('%d', ttl < 9000000000000 and ttl or 9000000000000)
    call('SET', key, pack('<BI4I6I4ddI4I6', tag, rate, period, burst, now, 0, whole, frac), 'PX', ttl)
    return pack('<dBI4H', now, 1, booked, #s) .. s
  elseif whole and (n > burst or call('PTTL', key) ~= -1) then
    return pack('<dBI4H', now, 0, 0, #s) .. s
  end
  plainNow = now
end

-- The rest -------------------------------------------------------------------------------------------------------------

-- All that is not done by the short way, made when it is needed first: to make functions takes longer than to
-- decide a take. It shares nothing with what is around it, as to make even one function that does is a quarter of a take.
local function machinery(caller)
  local pack, unpack, ceil, call, pcall = struct.pack, struct.unpack, math.ceil, redis.call, redis.pcall
  local sub, byte, concat = string.sub, string.byte, table.concat
  local args = ARGV[1]
  local now                               -- the clock that decides

  -- What is known of the key at hand.
  local s                                 -- the state as stored; '' if there is none
  local e, shift, lag, stepped            -- the instant on the key's own clock, which never runs backwards
  local changed, fresh                    -- it is stored under other terms; its full quota is back
  local whole, frac                       -- a bucket's level, or the count of a fixed window
  local first, last                       -- of a fixed window: start and end
  local cells                             -- of a sliding window: counts, [0] the newest
  local head, base, total, size           -- of a log: entries over, units in them, units that count, entries in all
  local text                              -- a log: its beginning, so that a short one is read at once

  local function place(at, was)
    shift, lag, stepped = was, 0, false
    if was > 0 and now >= at then shift = 0 end
    e = now + shift
    if e < at then
      if caller or at - e <= 1000000 then
        lag = at - e
      else
        shift, stepped = at - now, true
      end
      e = at
    end
  end

  local function unseen()
    e, shift, lag, stepped, changed, fresh = now, 0, 0, false, false, true
  end

  -- Whole part and remainder of a·b / d, for b, d < 2^45. In pieces of seven bits nothing passes 2^53.
  local function muldiv(a, b, d)
    local v = a * b
    if v < 4503599627370496 then
      if v < d then return 0, v end
      local rem = v % d
      return (v - rem) / d, rem
    end
    local part = a % d
    local q, rem = 0, 0
    for k = b < 1073741824 and 4 or 6, 0, -1 do
      v = rem * 128 + part * (math.floor(b / 128 ^ k) % 128)
      rem = v % d
      q = q * 128 + (v - rem) / d
    end
    return (a - part) / d * b + q, rem
  end

  -- life is how long the key is not as if never seen, on its own clock. 285 years are long enough.
  local function save(key, value, life)
    local ttl = ceil((life + shift + lag) / 1000) + 1
    if caller then ttl = ttl + 1000 end
    call('SET', key, value, 'PX', ttl < 9000000000000 and ttl or 9000000000000)
  end

  local FOREIGN, OUTSIDE = 2, 3
  local HEADER, ENTRY, READ = 35, 12, 421 -- of a log: bytes before the entries, of one, and read at once

  -- What another program may have written must neither fail the call, in which others have a part, nor be booked upon. So
  -- every number is checked by which instants are reckoned or loops are led.
  local function odd(at, was)
    return not (at % 1 == 0 and at >= -9007199254740992 and at <= 9007199254740992 and
      was % 1 == 0 and was >= 0 and was <= 9007199254740992)
  end

  -- Whether terms that are not the rule's are a limit's.
  local function strange(terms)
    local tag, rate, period = unpack('<BI4I6', terms)
    if rate < 1 or rate > 1000000000 or period > 31622400000000 or period < 1 and tag ~= 0xA3 then return true end
    if tag <= 0xA2 then
      local burst = unpack('<I4', terms, 12)
      return burst < 1 or burst > 1000000000
    elseif tag == 0xA4 then
      local k = byte(terms, 12)
      return k < 1 or k > 100 or period % k > 0
    end
    return tag == 0xA5 and rate > 100000
  end

  -- see brings a key to the clock, or tells why that cannot be.

  -- From here on functions share what is above as a whole, which is what makes them cheap to make.
  local function decider()
    -- Of each algorithm, made when a rule asks for it: bring the key to now, does n fit, book n, store it as it is, give
    -- back, and what the caller is told of the state before.
    local see, fits, book, keep, refund, told = {}, {}, {}, {}, {}, {}
    local make = {}

    -- Token bucket ------------------------------------------------------------------------------------------------------

    make[0xA1] = function()
      see[0xA1] = function(rule)
        if s == '' then
          whole, frac = rule.burst, 0
          return unseen()
        end
        if #s ~= 41 then return FOREIGN end
        local terms, at, was, units, f = unpack('<c15ddI4I6', s)
        local rate, period, burst = rule.rate, rule.period, rule.burst
        changed = terms ~= rule.terms
        if changed then
          if strange(terms) then return FOREIGN end
          local _
          _, rate, period, burst = unpack('<BI4I6I4', terms)
        end
        if f >= period or units > burst or units == burst and f > 0 or odd(at, was) then return FOREIGN end
        place(at, was)
        fresh, whole, frac = false, units, f
        if e > at then
          local q, rem = muldiv(e - at, rate, period)
          whole, frac = whole + q, frac + rem
          if frac >= period then whole, frac = whole + 1, frac - period end
        end
        if whole >= burst then
          whole, frac = rule.burst, 0
          return unseen()
        end
        if changed then
          if period ~= rule.period then frac = muldiv(rule.period, frac, period) end
          if whole >= rule.burst then whole, frac = rule.burst, 0 end
        end
      end

      fits[0xA1] = function(rule, n) return n <= whole end

      keep[0xA1] = function(key, rule)
        save(key, pack('<c15ddI4I6', rule.terms, e, shift, whole, frac), ((rule.burst - whole) * rule.period - frac) / rule.rate)
      end

      book[0xA1] = function(key, rule, n)
        whole = whole - n
        keep[0xA1](key, rule)
      end

      refund[0xA1] = function(key, rule, n)
        if fresh or n >= rule.burst - whole then return call('DEL', key) end
        whole = whole + n
        keep[0xA1](key, rule)
      end
    end

    -- Leaky bucket ------------------------------------------------------------------------------------------------------

    make[0xA2] = function()
      see[0xA2] = function(rule)
        whole, frac = 0, 0
        if s == '' then return unseen() end
        if #s ~= 41 then return FOREIGN end
        local terms, at, was, units, f = unpack('<c15ddI4I6', s)
        local rate, period, burst = rule.rate, rule.period, rule.burst
        changed = terms ~= rule.terms
        if changed then
          if strange(terms) then return FOREIGN end
          local _
          _, rate, period, burst = unpack('<BI4I6I4', terms)
        end
        if f >= period or units > burst or units == burst and f > 0 or odd(at, was) then return FOREIGN end
        place(at, was)
        fresh, whole, frac = false, units, f
        if e > at then
          local q, rem = muldiv(e - at, rate, period)
          whole, frac = whole - q, frac - rem
          if frac < 0 then whole, frac = whole - 1, frac + period end
        end
        if whole < 0 or whole == 0 and frac == 0 then
          whole, frac = 0, 0
          return unseen()
        end
        if changed then
          if period ~= rule.period then
            local rem
            frac, rem = muldiv(rule.period, frac, period)
            if rem > 0 then frac = frac + 1 end
            if frac == rule.period then whole, frac = whole + 1, 0 end
          end
          if whole >= rule.burst then whole, frac = rule.burst, 0 end
        end
      end

      -- The units used leave first, and must have left when the longest delay is over.
      fits[0xA2] = function(rule, n, delay)
        local used = frac > 0 and whole + 1 or whole
        if used + n > rule.burst then return false end
        if fresh or delay >= 9007199254740992 then return true end
        if delay < lag then return false end
        local q, rem = muldiv(delay - lag, rule.rate, rule.period)
        return whole < q or whole == q and frac <= rem
      end

      keep[0xA2] = function(key, rule)
        save(key, pack('<c15ddI4I6', rule.terms, e, shift, whole, frac), (whole * rule.period + frac) / rule.rate)
      end

      book[0xA2] = function(key, rule, n)
        whole = whole + n
        keep[0xA2](key, rule)
      end

      -- A departure once promised is spent, and later ones are promised already.
      refund[0xA2] = function() end
    end

    -- Fixed window ------------------------------------------------------------------------------------------------------

    make[0xA3] = function()
      -- Finds the window of the rule that holds e, unless it is a calendar's and none of those given does.
      local function window(rule)
        if rule.period > 0 then
          first = e - e % rule.period
          last = first + rule.period
          return
        end
        local edges = rule.edges
        for k = 1, 3 do
          if e >= edges[k] and e < edges[k + 1] then
            first, last = edges[k], edges[k + 1]
            return
          end
        end
        return OUTSIDE
      end

      see[0xA3] = function(rule)
        local count, over = 0, 0
        if s ~= '' then
          if #s < 47 or #s > 111 then return FOREIGN end -- no zone's name is longer
          local terms, at, was, units, since, to, from = unpack('<c11ddI4dd', s)
          local period = rule.period
          changed = terms ~= rule.terms or sub(s, from) ~= rule.text
          if changed then
            if strange(terms) then return FOREIGN end
            local _
            _, _, period = unpack('<BI4I6', terms)
          end
          if units > 1000000000 or odd(at, was) or odd(to, 0) or not (since <= at and at < to) or
            period > 0 and (to - since ~= period or from <= #s) then return FOREIGN end
          place(at, was)
          count, over = units, to
        end
        whole, fresh = count, count == 0 or e >= over
        if fresh then
          whole = 0
          unseen()
        end
        return window(rule)
      end

      fits[0xA3] = function(rule, n) return whole + n <= rule.rate end

      keep[0xA3] = function(key, rule)
        save(key, pack('<c11ddI4dd', rule.terms, e, shift, whole, first, last) .. rule.text, last - e)
      end

      book[0xA3] = function(key, rule, n)
        whole = whole + n
        keep[0xA3](key, rule)
      end

      refund[0xA3] = function(key, rule, n, taken)
        if taken < first or taken >= last then return end
        whole = whole - n
        if whole <= 0 then return call('DEL', key) end
        keep[0xA3](key, rule)
      end
    end

    -- Sliding window ----------------------------------------------------------------------------------------------------

    make[0xA4] = function()
      -- ⌈what counts⌉ at off behind the start of the newest of k cells, each count read as at most most.
      local function weigh(c, k, cell, off, most)
        local sum = 0
        for i = 0, k - 1 do sum = sum + (c[i] < most and c[i] or most) end
        if c[k] > 0 then
          local q, rem = muldiv(cell - off, c[k] < most and c[k] or most, cell)
          sum = sum + q
          if rem > 0 then sum = sum + 1 end
        end
        return sum
      end

      local function newest()
        for i = 0, #cells do
          if cells[i] > 0 then return i end
        end
      end

      see[0xA4] = function(rule)
        local k = rule.cells
        cells = {}
        for i = 0, k do cells[i] = 0 end
        if s == '' then return unseen() end
        if #s < 36 then return FOREIGN end
        local terms, at, was, from = unpack('<c12dd', s)
        local cell, had = rule.cell, k
        changed = terms ~= rule.terms
        if changed then
          if strange(terms) then return FOREIGN end
          local _, period
          _, _, period, had = unpack('<BI4I6B', terms)
          cell = period / had
        end
        if #s ~= 32 + 4 * had or odd(at, was) then return FOREIGN end
        local counts = {}
        for i = 0, had do
          counts[i], from = unpack('<I4', s, from)
          if counts[i] > 1000000000 then return FOREIGN end
        end
        place(at, was)
        fresh = false
        local gone = (e - e % cell) / cell - (at - at % cell) / cell
        if gone > had then return unseen() end
        local old = cells
        if cell ~= rule.cell or had ~= k then
          old = {}
          for i = 0, gone - 1 do old[i] = 0 end
        end
        for i = gone, had do old[i] = counts[i - gone] end
        if old ~= cells then
          -- Not as the old rate would read it: a window knows what it admitted also when it was lowered meanwhile.
          local sum = weigh(old, had, cell, e % cell, 1000000000)
          cells[0] = sum < 1000000000 and sum or 1000000000
        end
        if not newest() then return unseen() end
      end

      fits[0xA4] = function(rule, n)
        return weigh(cells, rule.cells, rule.cell, e % rule.cell, rule.rate) + n <= rule.rate
      end

      keep[0xA4] = function(key, rule)
        local out = { pack('<c12dd', rule.terms, e, shift) }
        for i = 0, rule.cells do out[i + 2] = pack('<I4', cells[i]) end
        save(key, concat(out), (rule.cells + 1 - newest()) * rule.cell - e % rule.cell)
      end

      book[0xA4] = function(key, rule, n)
        cells[0] = cells[0] + n
        keep[0xA4](key, rule)
      end

      refund[0xA4] = function(key, rule, n, taken)
        local i = (e - e % rule.cell - (taken - taken % rule.cell)) / rule.cell
        local had = cells[i]
        if not had or had == 0 then return end
        cells[i] = had > n and had - n or 0
        if not newest() then return call('DEL', key) end
        keep[0xA4](key, rule)
      end
    end

    -- Sliding log -------------------------------------------------------------------------------------------------------

    make[0xA5] = function()

      -- Instant and running sum of entry i, counted from 0.
      local function entry(key, i)
        local from = HEADER + i * ENTRY
        if from + ENTRY <= #text then return unpack('<dI4', text, from + 1) end
        return unpack('<dI4', call('GETRANGE', key, from, from + ENTRY - 1))
      end

      -- The first entry from on for which a sum of units is reached.
      local function reach(key, from, units)
        local to = size - 1
        while from < to do
          local mid = math.floor((from + to) / 2)
          local _, sum = entry(key, mid)
          if (sum - base) % 4294967296 >= units then to = mid else from = mid + 1 end
        end
        return from
      end

      see[0xA5] = function(rule, key)
        text, size, total, head, base = s, 0, 0, 0, 0
        if s == '' then return unseen() end
        if #s < HEADER + ENTRY then return FOREIGN end
        local terms, at, was, over, gone = unpack('<c11ddI4I4', s)
        local period = rule.period
        changed = terms ~= rule.terms
        if changed then
          if strange(terms) then return FOREIGN end
          local _, _, had = unpack('<BI4I6', terms)
          if had < period then period = had end
        end
        size = ((#s < READ and #s or call('STRLEN', key)) - HEADER) / ENTRY
        if size % 1 > 0 or over >= size or odd(at, was) then return FOREIGN end
        local instant, sum = entry(key, size - 1)
        if odd(instant, 0) or instant > at then return FOREIGN end
        place(at, was)
        fresh, head, base = false, over, gone
        if e - instant >= period then
          size, head, base = 0, 0, 0
          return unseen()
        end
        local oldest = entry(key, head)
        if odd(oldest, 0) then return FOREIGN end
        if e - oldest >= period then
          local from, to = head + 1, size - 1
          while from < to do
            local mid = math.floor((from + to) / 2)
            if e - entry(key, mid) >= period then from = mid + 1 else to = mid end
          end
          local _
          _, base = entry(key, from - 1)
          head = from
        end
        total = (sum - base) % 4294967296
      end

      fits[0xA5] = function(rule, n) return total + n <= rule.rate end

      local function header(rule)
        return pack('<c11ddI4I4', rule.terms, e, shift, head, base)
      end

      keep[0xA5] = function(key, rule)
        call('SETRANGE', key, 0, header(rule))
        local ttl = ceil((entry(key, size - 1) + rule.period - e + shift + lag) / 1000) + 1
        call('PEXPIRE', key, caller and ttl + 1000 or ttl)
      end

      book[0xA5] = function(key, rule, n)
        local units = (base + total + n) % 4294967296
        if size == 0 then
          return save(key, header(rule) .. pack('<dI4', e, units), rule.period)
        end
        if entry(key, size - 1) == e then size = size - 1 end
        if head >= 64 and head * 2 > size then
          local rest = call('GETRANGE', key, HEADER + head * ENTRY, HEADER + size * ENTRY - 1)
          head = 0
          return save(key, header(rule) .. rest .. pack('<dI4', e, units), rule.period)
        end
        call('SETRANGE', key, HEADER + size * ENTRY, pack('<dI4', e, units))
        call('SETRANGE', key, 0, header(rule))
        local ttl = ceil((rule.period + shift + lag) / 1000) + 1
        call('PEXPIRE', key, caller and ttl + 1000 or ttl)
      end

      -- A log that gives the same numbers: its first entry, those at which n units fit and one more than are left does, and the
      -- last. booked is how often n was taken.
      told[0xA5] = function(key, rule, n, booked)
        if fresh then return '' end
        local free = rule.rate - total - n * booked
        local at = { head, reach(key, head, n - free), reach(key, head, free < 0 and 1 - free or 1), size - 1 }
        table.sort(at)
        local out, before = { pack('<c27I4I4', s, 0, 0) }, 0
        for i = 1, 4 do
          local instant, sum = entry(key, at[i])
          sum = (sum - base) % 4294967296
          if sum > before then
            out[#out + 1] = pack('<dI4', instant, sum)
            before = sum
          end
        end
        return concat(out)
      end

      -- All later sums are lower by n. To write them takes Redis a microsecond each, so what has too many behind it stays charged.
      -- An entry that is empty then stays, so that nothing has to be moved.
      refund[0xA5] = function(key, rule, n, taken)
        local from, to = head, size - 1
        while from < to do
          local mid = math.floor((from + to) / 2)
          if entry(key, mid) >= taken then to = mid else from = mid + 1 end
        end
        local instant, sum = entry(key, from)
        if instant ~= taken or size - from > 4096 then return end
        local before = base
        if from > head then
          local _
          _, before = entry(key, from - 1)
        end
        local units = (sum - before) % 4294967296
        if n > units then n = units end
        if n == 0 then return end
        if n == total then return call('DEL', key) end
        local rest, out = call('GETRANGE', key, HEADER + from * ENTRY, HEADER + size * ENTRY - 1), {}
        for pos = 1, #rest, ENTRY do
          local at, to = unpack('<dI4', rest, pos)
          out[#out + 1] = pack('<dI4', at, (to - n) % 4294967296)
        end
        call('SETRANGE', key, HEADER + from * ENTRY, concat(out))
        text, total = '', total - n
        -- Empty entries at the end become copies of the last that is not: a log is as old as its newest unit.
        local last = reach(key, head, total)
        if last < size - 1 then
          local copy = call('GETRANGE', key, HEADER + last * ENTRY, HEADER + (last + 1) * ENTRY - 1)
          call('SETRANGE', key, HEADER + (last + 1) * ENTRY, copy:rep(size - 1 - last))
        end
        keep[0xA5](key, rule)
      end
    end

    -- Rules -----------------------------------------------------------------------------------------------------------

    local rules = {}

    local function ruleOf(i)
      local arg = i > 0 and ARGV[i + 1] or sub(args, 9)
      local tag, rate, period = unpack('<BI4I6', arg)
      if not see[tag] then make[tag]() end
      local rule = { tag = tag, rate = rate, period = period, burst = rate, text = '' }
      if tag <= 0xA2 then
        rule.terms, rule.burst = arg, unpack('<I4', arg, 12)
      elseif tag == 0xA4 then
        rule.terms, rule.cells = arg, byte(arg, 12)
        rule.cell = period / rule.cells
      else
        rule.terms = sub(arg, 1, 11)
        if period == 0 then
          rule.edges, rule.text = { unpack('<dddd', arg, 12) }, sub(arg, 44)
        end
      end
      rules[i] = rule
      return rule
    end

    -- Keys --------------------------------------------------------------------------------------------------------------

    -- Reads the key; false if it holds something else.
    local function read(key, tag)
      if tag == 0xA5 then
        s = pcall('GETRANGE', key, 0, READ - 1)
      else
        s = pcall('GET', key) or ''
      end
      return type(s) == 'string' and (s == '' or byte(s) == tag)
    end

    -- A key without an end would be remembered for ever.
    local function mend(key, rule)
      if call('PTTL', key) == -1 then keep[rule.tag](key, rule) end
    end

    -- A refund settles under the terms stored with the key.
    local function storedRule(tag)
      if not see[tag] then make[tag]() end
      local _, rate, period = unpack('<BI4I6', s)
      local rule = { tag = tag, rate = rate, period = period, burst = rate, text = '' }
      if tag <= 0xA2 then
        rule.terms, rule.burst = sub(s, 1, 15), unpack('<I4', s, 12)
      elseif tag == 0xA4 then
        rule.terms, rule.cells = sub(s, 1, 12), byte(s, 12)
        rule.cell = period / rule.cells
      else
        rule.terms = sub(s, 1, 11)
        if tag == 0xA3 then
          local _, _, _, from, to, rest = unpack('<ddI4dd', s, 12)
          rule.edges, rule.text = { from, to, to, to }, sub(s, rest)
        end
      end
      return rule
    end

    -- Groups ------------------------------------------------------------------------------------------------------------

    -- The only take of its group: decided and booked at once, n as often as it fits. Returns what is told of it.
    local function alone(clock, key, i, n, times, delay, how)
      now = clock
      local rule = rules[i] or ruleOf(i)
      local tag = rule.tag
      if not read(key, tag) then return pack('<BI4H', FOREIGN, 0, 0), '' end
      local why = see[tag](rule, key)
      if why == OUTSIDE then return pack('<BI4H', why, 0, 8), pack('<d', e) end
      if why then return pack('<BI4H', why, 0, 0), '' end
      local before, booked, verdict = s, 0, 1
      if n > 0 then
        if n <= rule.burst and fits[tag](rule, n, delay) then
          booked = 1
          if times > 1 then
            -- The largest number of times that fits together.
            local from, most = 1, math.min(times, math.floor(rule.burst / n))
            while from < most do
              local mid = math.ceil((from + most) / 2)
              if fits[tag](rule, n * mid, delay) then from = mid else most = mid - 1 end
            end
            booked = from
          end
        elseif how == 0 then
          verdict = 0
        end
        if tag == 0xA5 then before = told[0xA5](key, rule, n, booked) end
        if booked > 0 then
          book[tag](key, rule, n * booked)
        elseif n <= rule.burst and s ~= '' then
          if (changed or stepped) and not fresh then keep[tag](key, rule) else mend(key, rule) end
        end
      elseif tag == 0xA5 then
        before = told[0xA5](key, rule, 0, 0)
      end
      return pack('<BI4H', verdict, booked, #before), before
    end

    -- Several takes, whose keys are behind the k-th: all are looked at, then all are booked, or none. Puts what is told of them
    -- behind out[o].
    local function together(clock, start, k, out, o, count, veto)
      now = clock
      local pos, from, at = start, k, o + 1
      local verdict, never, news = veto and 0 or 1, veto, false
      o = at
      for _ = 1, count do
        local i, n, _, delay, how, to = unpack('<BI4I4dB', args, pos)
        pos, k = to, k + 1
        local key, rule = KEYS[k], rules[i] or ruleOf(i)
        local tag = rule.tag
        local before = ''
        local why = FOREIGN
        if read(key, tag) then why = see[tag](rule, key) end
        if why then
          if verdict ~= FOREIGN then verdict = why end
          if why == OUTSIDE then before = pack('<d', e) end
        else
          local ok = n == 0 or n <= rule.burst and fits[tag](rule, n, delay)
          if not ok and how == 0 then
            if verdict == 1 then verdict = 0 end
            never = never or n > rule.burst
            if n <= rule.burst and not changed then mend(key, rule) end
          end
          news = news or (changed or stepped) and not fresh
          before = tag == 0xA5 and told[0xA5](key, rule, n, ok and 1 or 0) or s
        end
        out[o + 1] = pack('<I4H', 0, #before)
        out[o + 2] = before
        o = o + 2
      end
      out[at] = pack('<B', verdict)
      if verdict > 1 or verdict == 0 and (never or not news) then return pos, o end
      -- A shadow take may have the key of a real one, which is booked first.
      for shadow = 0, 1 do
        local p = start
        for j = 1, count do
          local i, n, _, delay, how, to = unpack('<BI4I4dB', args, p)
          p = to
          if how == shadow and n > 0 then
            local key, rule = KEYS[from + j], rules[i]
            local tag = rule.tag
            read(key, tag)
            see[tag](rule, key)
            local ok = verdict == 1 and n <= rule.burst and fits[tag](rule, n, delay)
            if verdict == 1 then
              local before = tag == 0xA5 and told[0xA5](key, rule, n, ok and 1 or 0) or s
              out[at + 2 * j - 1] = pack('<I4H', ok and 1 or 0, #before)
              out[at + 2 * j] = before
            end
            if ok then
              book[tag](key, rule, n)
            elseif n <= rule.burst and (changed or stepped) and not fresh then
              keep[tag](key, rule)
            end
          end
        end
      end
      return pos, o
    end

    local function giveBack(clock, key, tag, n, taken)
      now = clock
      if read(key, tag) and s ~= '' then
        local rule = #s >= (tag == 0xA3 and 47 or 36) and not strange(s) and storedRule(tag)
        if rule and not see[tag](rule, key) and (not fresh or tag == 0xA1) then refund[tag](key, rule, n, taken) end
      end
    end

    return { alone = alone, together = together, giveBack = giveBack }
  end

  return decider()
end

-- The call ----------------------------------------------------------------------------------------------------------

if plain then
  local n, times = struct.unpack('<I4I4', args)
  local head, s = machinery(false).alone(plainNow, KEYS[1], 0, n, times, 0, 0)
  return struct.pack('<d', plainNow) .. head .. s
end

local spread, pack, unpack, ceil, call, pcall = unpack, struct.pack, struct.unpack, math.ceil, redis.call, redis.pcall
local decimal = string.format
local pos, stop, k = 1, #args, 0
local now, machine, out, o
local last, terms, tag, rate, period, burst -- the rule at hand

while pos <= stop do
  local flags, count, runs, clock, i, n, times, delay, how, to = unpack('<BBHdBI4I4dB', args, pos)
  local caller, told = flags % 2 == 1, 0
  if caller then
    now = clock
  elseif not now then
    local t = call('TIME')
    now = t[1] * 1000000 + t[2]
    told = now
  end
  if flags % 4 >= 2 then
    machinery(caller).giveBack(now, KEYS[1], i, n, delay)
    return ''
  end
  local single = count == 1 and flags < 4
  if not out and not (single and runs == 1 and to > stop) then out, o = { pack('<d', told) }, 1 end

  if single then
    pos = to
    if i ~= last then
      last, terms, tag = i, ARGV[i + 1], 0
      if #terms == 15 then tag, rate, period, burst = unpack('<BI4I6I4', terms) end
    end
    local short = tag == 0xA1 and how == 0 and n > 0
    -- What is nil here or false is asked for by itself: MGET does not tell a key of another kind from none.
    local had = short and runs > 1 and pcall('MGET', spread(KEYS, k + 1, k + runs))
    for run = 1, runs do
      k = k + 1
      local key, whole, frac, head = KEYS[k], nil, 0, nil
      local s = short and (had and had[run] or pcall('GET', key)) or ''
      if short and s == '' then
        whole = burst
      elseif #s == 41 then
        local under, at, shift, units, part = unpack('<c15ddI4I6', s)
        local v = (now - at) * rate + part
        if under == terms and shift == 0 and at % 1 == 0 and part < period and (units < burst or units == burst and part == 0) and
          v >= part and v < 4503599627370496 then
          whole, frac = units, v
          if v >= period then
            frac = v % period
            whole = units + (v - frac) / period
          end
          if whole >= burst then whole, frac = burst, 0 end
        end
      end
      if not whole or n > whole and n <= burst and call('PTTL', key) == -1 then
        machine = machine or machinery(caller)
        head, s = machine.alone(now, key, i, n, times, delay, how)
      else
        local booked = 0
        if n <= whole then
          booked = times == 1 and 1 or math.min(times, math.floor(whole / n))
          whole = whole - n * booked
          local ttl = ceil(((burst - whole) * period - frac) / rate / 1000) + (caller and 1001 or 1)
          ttl = decimal('%d', ttl < 9000000000000 and ttl or 9000000000000)
          call('SET', key, pack('<c15ddI4I6', terms, now, 0, whole, frac), 'PX', ttl)
        end
        if booked == 1 then
          head = s == '' and '\1\1\0\0\0\0\0' or '\1\1\0\0\0\41\0'
        else
          head = pack('<BI4H', booked > 0 and 1 or 0, booked, #s)
        end
      end
      if not out then return pack('<d', told) .. head .. s end
      out[o + 1] = head
      out[o + 2] = s
      o = o + 2
    end
  else
    local start = to - 18
    local p, takes, verdict = start, flags < 4 and {}, 1
    for j = 1, takes and count or 0 do
      i, n, times, delay, how, p = unpack('<BI4I4dB', args, p)
      if i ~= last then
        last, terms, tag = i, ARGV[i + 1], 0
        if #terms == 15 then tag, rate, period, burst = unpack('<BI4I6I4', terms) end
      end
      local key, whole, frac = KEYS[k + j], burst, 0
      local short = tag == 0xA1 and how == 0
      local s = short and pcall('GET', key) or ''
      if s ~= '' then
        short = #s == 41
        if short then
          local under, at, shift, units, part = unpack('<c15ddI4I6', s)
          local v = (now - at) * rate + part
          short = under == terms and shift == 0 and at % 1 == 0 and part < period and
            (units < burst or units == burst and part == 0) and v >= part and v < 4503599627370496
          frac = v % period
          whole = units + (v - frac) / period
          if whole >= burst then whole, frac = burst, 0 end
        end
      end
      if not short or n > whole and n <= burst and call('PTTL', key) == -1 then
        takes = nil
        break
      end
      if n > whole then verdict = 0 end
      takes[j] = { terms, ((burst - whole + n) * period - frac) / rate, whole - n, frac, n, s }
    end
    if takes then
      pos, o = p, o + 1
      out[o] = verdict == 1 and '\1' or '\0'
      for j = 1, count do
        local t = takes[j]
        local s, book = t[6], verdict == 1 and t[5] > 0
        if book then
          local key, ttl = KEYS[k + j], ceil(t[2] / 1000) + (caller and 1001 or 1)
          ttl = decimal('%d', ttl < 9000000000000 and ttl or 9000000000000)
          call('SET', key, pack('<c15ddI4I6', t[1], now, 0, t[3], t[4]), 'PX', ttl)
        end
        out[o + 1] = pack('<I4H', book and 1 or 0, #s)
        out[o + 2] = s
        o = o + 2
      end
    else
      machine = machine or machinery(caller)
      pos, o = machine.together(now, start, k, out, o, count, flags >= 4)
    end
    k = k + count
  end
end
return table.concat(out)
