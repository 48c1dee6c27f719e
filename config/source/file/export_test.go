package filesource

import "github.com/fsnotify/fsnotify"

// NotifyWith has the source get its notifiers from f.
func (s *Source) NotifyWith(f func() (*fsnotify.Watcher, error)) { s.newNotifier = f }
