// Package house exists so that rules of this repository which no tool knows are tests: who may import whom, that no file
// names a path of somebody's machine, that every internal package says why it exists, and that tests do not wait for the
// clock on the wall. It has no code of its own.
package house
