package redisbroker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// defaultMaxLen is the default of PublisherConfig.MaxLen.
const defaultMaxLen = 10_000

// trimScript drops a stream's oldest entries, as many as it has more than ARGV[1], but
// none that a consumer group has yet to read, or to ack. A script, so that nothing comes
// between looking and dropping. It returns how many it has dropped.
var trimScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local over = redis.call('XLEN', KEYS[1]) - ARGV[1]
if over <= 0 then return 0 end

local function less(a, b)
  local aTime, aSeq = string.match(a, '(%d+)-(%d+)')
  local bTime, bSeq = string.match(b, '(%d+)-(%d+)')
  for _, pair in ipairs({{aTime, bTime}, {aSeq, bSeq}}) do
    local x, y = pair[1], pair[2]
    if #x ~= #y then return #x < #y end
    if x ~= y then return x < y end
  end
  return false
end

local first -- of the entries that somebody needs
for _, fields in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = {}
  for i = 1, #fields, 2 do group[fields[i]] = fields[i + 1] end
  local needed = group['last-delivered-id']
  if group['pending'] > 0 then
    needed = redis.call('XPENDING', KEYS[1], group['name'])[2]
  end
  if not first or less(needed, first) then first = needed end
end
if not first then return 0 end
return redis.call('XTRIM', KEYS[1], 'MINID', '~', first, 'LIMIT', over)
`)

// trimmer trims streams every so many messages.
type trimmer struct {
	mu     sync.Mutex
	added  map[string]int64 // to each stream since it was trimmed
	paused time.Time        // until when, as trimming has failed
	full   time.Time        // when the server was last found to have no memory left
}

// trimPause is how long trimming rests that has failed.
const trimPause = time.Minute

// due counts messages that were added, and returns the topics to trim: those that have
// got a tenth of the limit since. One topic is that of all messages.
func (t *trimmer) due(maxLen int64, topics []string, added int) (due []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.added == nil {
		t.added = map[string]int64{}
	}
	count := func(topic string, n int64) {
		before, known := t.added[topic]
		t.added[topic] = before + n
		if !known || before+n >= max(1, maxLen/10) {
			t.added[topic] = 0
			due = append(due, topic)
		}
	}
	switch {
	case added == 0:
	case len(topics) == 1:
		count(topics[0], int64(added))
	default:
		for _, topic := range topics[:added] {
			count(topic, 1)
		}
	}
	if time.Now().Before(t.paused) {
		return nil
	}
	return due
}

// trimFullEvery is how often a server without memory is trimmed of all that is acked.
const trimFullEvery = time.Second

// isFull notes that the server has no memory left, and reports whether to make room.
func (t *trimmer) isFull() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.full) < trimFullEvery || now.Before(t.paused) {
		return false
	}
	t.full = now
	return true
}

// trim trims the topics that are due, or, if the server is full, all of them, of all that
// is acked. What it does not manage is done another time.
func (p *Publisher) trim(ctx context.Context, topics []string, added int, err error) {
	if p.cfg.MaxLen < 0 || p.cfg.TrimUnread {
		return
	}
	due, keep := p.trimmer.due(p.cfg.MaxLen, topics, added), p.cfg.MaxLen
	if redis.IsOOMError(err) && p.trimmer.isFull() {
		due, keep = slices.Compact(slices.Sorted(slices.Values(topics))), 0
	}
	for _, topic := range due {
		err := trimScript.Run(ctx, p.client, []string{topic}, keep).Err()
		if ctx.Err() != nil { // the caller's time is over, which says nothing of the server
			return
		}
		if err != nil {
			p.trimmer.mu.Lock()
			p.trimmer.paused = time.Now().Add(trimPause)
			p.trimmer.mu.Unlock()
			p.cfg.Logger.Warn("redisbroker: old messages were not dropped; will try again", "topic", topic, "error", err, "in", trimPause)
			return
		}
	}
}
