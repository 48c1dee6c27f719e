// Package filesource follows a policy document in a file.
//
//	src, err := filesource.New(filesource.Config{Path: "/etc/shop/limits.yaml"})
//
// Import it under its own name:
//
//	import filesource "github.com/spillway-go/spillway/config/source/file"
//
// # What is noticed
//
// The directory of the file is watched, not the file, so a new file that takes the place of the old one is noticed like one
// that is written in place: an editor's rename, an atomic replacement, a file that is gone for a moment. Where the path leads
// through symbolic links, the directory of each of them is watched as well, up to that of the file. In a mounted ConfigMap or
// Secret of Kubernetes that is the link ..data, which is swapped for a new version; a file mounted by subPath never changes,
// so mount the directory. A directory that is removed and made again is found again. Events that the kernel has dropped
// count as a change.
//
// Network file systems say nothing of what other machines write, and nothing is said to the directory of a file when one
// further up is renamed. So the file is looked at every Config.Poll, too: another size, time, inode, or permission is a
// change. One that was written less than two seconds before a look is told once more at the next, as a second edition of the
// same size may bear the same time.
//
// Where watching fails, as with the limit of inotify reached or in a directory that may be searched and not read, the file is
// looked at every second, or every Config.Poll if that is shorter, and watching is tried again every minute at least.
// Both are logged. With Config.Poll off, Watch returns the error instead.
//
// # What is loaded
//
// Load reads the file again after Config.Settle, until two readings in a row are equal in content, size, time and inode. What
// it returns is thus a document that nobody has touched for that long: who truncates a file and writes it in pieces has his
// pieces waited for if his pauses are shorter. If the last line has no end, as in the middle of being written, five times
// as long is waited. More cannot be known from outside: a writer that pauses for longer, at the end of a line, has half of his
// document read, and half of a YAML document may well be a valid one. Write to another file in the same directory and
// rename it, as ConfigMaps, configuration management and most editors do.
//
// A file that is missing or empty, or not left alone for fifty times Config.Settle, is [config.ErrIncomplete]. A directory, a
// named pipe or a device, a file that may not be read and one above [config.MaxDocument] are errors; nothing waits for
// the other end of a pipe. Only a file system that does not answer, as that of a dead server mounted hard, holds Load
// and Watch up beyond the end of their context: no process can leave such a call.
package filesource
