// Package strictyaml reads the gateway's small files, some of which hold secrets: each fault is told with its
// line and column, and no message repeats what stands in a file.
package strictyaml
