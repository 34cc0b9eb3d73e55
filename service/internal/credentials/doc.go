// Package credentials reads the files with couriers' secrets and operators' tokens. Its errors and notes name
// entries by their line, key id and source, and never what is secret in them.
package credentials
