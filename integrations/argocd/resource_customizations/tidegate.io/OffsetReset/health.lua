-- Healthy: the reset succeeded. Suspended: its plan waits to be approved, or spec.suspend keeps it from going on.
-- Degraded: the reset failed or is refused.
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
local ready, stalled, complete = conditions["Ready"], conditions["Stalled"], conditions["Complete"]
if stalled ~= nil and stalled.status == "True" then
  return {status = "Degraded", message = stalled.message}
end
local suspended = complete ~= nil and complete.reason == "Suspended"
if ready ~= nil and (suspended or obj.status.phase == "AwaitingApproval") then
  return {status = "Suspended", message = ready.message}
end
if ready ~= nil and ready.status == "True" then
  return {status = "Healthy", message = ready.message}
end
return {status = "Progressing", message = ready ~= nil and ready.message or "the operator has said nothing yet"}
