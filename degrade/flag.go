package degrade

import "net/http"

// Flag lets a request through marked as degraded, so that the application decides what to leave out; see [FromContext]. It
// has to be in a [Within], whose limit is how much of that the service can bear; over it the request is not served.
func Flag() Handler { return flag{} }

type flag struct{}

var (
	_ Moded     = flag{}
	_ Proceeder = flag{}
	_ Spender   = flag{}
)

func (flag) Mode() string { return ModeFlag }
func (flag) Proceeds()    {}
func (flag) Spends()      {}

func (flag) Degrade(_ http.ResponseWriter, r *http.Request, d *Denial) Outcome {
	if !d.Afford(r.Context()) {
		return Skip
	}
	return Proceed
}
