module tidegate.io/dev/pause

go 1.26.0
