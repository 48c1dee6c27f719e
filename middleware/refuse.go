package middleware

import (
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// retryUnavailable is told when nobody knows how long the store will be away.
const retryUnavailable = 2 * time.Second

// refuse answers a request that does not go on by the plain refusal.
func (v *visit) refuse(p *Pass, out outcome) {
	defer v.done()
	v.release(limiter.ResultWithdrawn)
	v.observeRefused(out)
	if h := v.w.Header(); len(h) > 0 {
		v.untellDegraded(h)
	}
	v.answers()
	if out == limited && !v.told && !v.answer.readOnly && !v.entry.Defer {
		v.tell()
		v.stage.settings.renderer.WriteRefusal(v.w, v.r, v.items, v.refusal(out))
		return
	}
	if out == limited && !v.told {
		v.writeHeaders()
	}
	if v.answer.readOnly {
		v.tellDegraded(v.w.Header(), degrade.ModeReadOnly)
		v.observeDegraded(degrade.ModeReadOnly, v.refusal(out).Status(), 0)
	}
	if !v.entry.Defer {
		v.stage.settings.renderer.Refuse(v.w, v.r, v.refusal(out))
		return
	}
	x := v.verdict(out)
	x.Refusal = v.stage.settings.renderer.Prepare(v.w.Header(), v.r, x.Refusal)
	p.no = &x
}

// refusal says what is told to the client, for all that refuse together.
func (v *visit) refusal(out outcome) response.Refusal {
	f := response.Refusal{At: v.now}
	switch out {
	case forbidden:
		f.Kind = response.Forbidden
		return f
	case unavailable:
		f.Kind, f.RetryAfter = response.Unavailable, retryUnavailable
		return f
	case broken:
		f.Kind, f.RetryAfter = response.Unavailable, limiter.Never
		return f
	}
	f.Kind, f.Silent = response.Overloaded, true
	longest := time.Duration(-1)
	for k := range v.active {
		a := &v.active[k]
		if !a.refuses() {
			continue
		}
		if a.cause() == degrade.Quota {
			f.Kind = response.QuotaExceeded
		}
		if a.set == response.Off {
			continue
		}
		f.Silent = false
		if a.violated || a.shut != nil {
			if f.Policies == nil {
				f.Policies = a.names[:1:1]
			} else {
				f.Policies = append(f.Policies, a.Name)
			}
			wait := v.wait(a)
			if a.adaptive && wait == limiter.Never {
				wait = 0 // the limit will move back: nobody knows when
			}
			if wait > longest {
				longest, f.Messages = wait, a.messages
			}
		}
		if a.full {
			f.Policies = append(f.Policies, a.inflight.Name())
			if longest < 0 {
				longest, f.Messages = 0, a.messages
			}
		}
	}
	f.RetryAfter = max(longest, v.answer.wait, 0)
	if v.answer.capacity {
		f.Kind = response.Overloaded
	}
	if v.answer.readOnly && f.Kind == response.Overloaded {
		f.Kind = response.ReadOnlyService
	} else if v.answer.readOnly {
		f.Kind = response.ReadOnlyQuota
	}
	return f
}

// wait is how long a policy that refuses lets the client wait.
func (v *visit) wait(a *active) time.Duration {
	if a.shut != nil {
		return a.shut.Wait
	}
	return v.takes[a.take].Decision.RetryAfter
}
