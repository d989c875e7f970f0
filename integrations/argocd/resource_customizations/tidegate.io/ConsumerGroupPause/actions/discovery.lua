-- Named by what happens to the partitions: "resume" could mean either the consumers or the pause.
local suspended = obj.spec.suspend == true
return {
  ["let-go"] = {displayName = "Let the partitions flow", iconClass = "fa fa-fw fa-play", disabled = suspended},
  ["pause-again"] = {displayName = "Pause the partitions", iconClass = "fa fa-fw fa-pause", disabled = not suspended},
}
