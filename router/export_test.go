package router

// Forward is for the tests outside of the package.
var Forward = forward
