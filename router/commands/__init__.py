"""What an operator asks a running router, or workers, from a shell: one noun a module.

Rule of the room: nothing here is part of the service. `listed` tells click of the commands and imports
nothing that takes time; a command's module is imported when it is called. What others have said of themselves
is made printable before it reaches a terminal. A key is sent, and never shown.
"""
