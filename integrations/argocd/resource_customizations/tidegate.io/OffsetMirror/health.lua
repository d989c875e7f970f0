-- Healthy: all topics are copied and in sync. Suspended: spec.suspend, nothing is copied. Progressing: topics are being
-- copied, or lag. Degraded: a copy has drifted or stopped, or nothing is copied until somebody does something.
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
if ready ~= nil and ready.status == "True" then
  if ready.reason == "Suspended" then
    return {status = "Suspended", message = ready.message}
  end
  return {status = "Healthy", message = ready.message}
end
return {status = "Progressing", message = ready ~= nil and ready.message or "the operator has said nothing yet"}
