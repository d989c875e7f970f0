-- Healthy: the reset has ended, or none is asked for; how it ended is said by its OffsetReset. Suspended: its plan waits
-- to be approved. Degraded: somebody has to look, or the group's offsets are about to expire.
if obj.metadata.deletionTimestamp ~= nil then
  return {status = "Progressing", message = "it is being deleted"}
end
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "the operator has not seen this generation yet"}
end
local conditions = {}
for _, condition in ipairs(obj.status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready, stalled = conditions["Ready"], conditions["Stalled"]
if stalled ~= nil and stalled.status == "True" then
  return {status = "Degraded", message = stalled.message}
end
if obj.status.reset ~= nil and obj.status.reset.phase == "AwaitingApproval" and ready ~= nil then
  return {status = "Suspended", message = ready.message}
end
local retained = conditions["Retained"]
if ready ~= nil and ready.status == "True" and retained ~= nil and retained.status == "False" then
  return {status = "Degraded", message = retained.message}
end
if ready ~= nil and ready.status == "True" then
  return {status = "Healthy", message = ready.message}
end
return {status = "Progressing", message = ready ~= nil and ready.message or "the operator has said nothing yet"}
