"""What a terminal shows: functions from analysis values to rich renderables. Nothing here prints.

A name that comes from a run is shown as it is: never as markup, never as a control character.
"""
