package rediscall

// Cause returns a short label of err for metrics.
func Cause(err error) string {
	if err == nil {
		return ""
	}
	return "other"
}
