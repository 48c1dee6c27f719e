package degrade

func PathsOf(route string) []string { return pathsOf(route) }
